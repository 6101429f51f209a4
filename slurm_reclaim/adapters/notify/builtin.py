"""The texts that are used where a site has none of its own; etc/notices/ is made from them
(`make docs`).

A terminal shows subject and body, so a body is a few lines of at most 78 columns.
"""

from __future__ import annotations

from slurm_reclaim.model.notice import NoticeKind

TEXTS: dict[NoticeKind, str] = {
    NoticeKind.WARNING: """\
Subject: Session $job will be hibernated in $left, at $deadline

Nothing was seen of you in job $job ($job_name) on $node for $idle.
Its whole state will be saved to disk, so that others can use its resources.
Nothing is lost, and it comes back as it was.

Keep it running:  type in a terminal, run a cell, or: $keep
Bring it back:    $restore
Why:              $explain
""",
    NoticeKind.WITHDRAWN: """\
Subject: Session $job stays: the warning is void

Job $job ($job_name) on $node will not be hibernated now: $reason.
There is nothing you need to do.
""",
    NoticeKind.HIBERNATED: """\
Subject: Session $job is hibernated, and nothing is lost

Job $job ($job_name) was saved to disk with everything in it. It is held in the
queue under the same job id, and its resources are free for others.
Why: $reason

Bring it back as it was: $restore
""",
    NoticeKind.NOT_HIBERNATED: """\
Subject: Session $job was not hibernated and runs on

Job $job ($job_name) on $node was to be hibernated, and that did not work: $reason.
It runs on as before. There is nothing you need to do.
""",
    NoticeKind.BLOCKED: """\
Subject: Session $job is idle and can't be hibernated

Nothing was seen of you in job $job ($job_name) on $node for $idle. It can't be
saved to disk: $reason.
It runs on. If you are done with it, please end it: scancel $job
""",
    NoticeKind.IDLE: """\
Subject: Session $job is idle

Nothing was seen of you in job $job ($job_name) on $node for $idle.
Nothing will be done about it, but others may be waiting for what it holds.

If you want to go on later:  reclaim hibernate $job  and then  $restore
If you are done with it:     scancel $job
""",
    NoticeKind.EXPIRY: """\
Subject: Hibernated session $job ends in $left, at $deadline

Job $job ($job_name) sleeps on disk: $reason.
Unless you bring it back before $deadline,
the job is cancelled and what was saved of it is deleted.

Bring it back as it was:  $restore
Keep it on disk:          reclaim checkpoints pin $job
""",
    NoticeKind.UPGRADE: """\
Subject: Bring back your hibernated session $job before $deadline

Job $job ($job_name) sleeps on disk. Its nodes will be upgraded: $reason.
After that no node can restore it as it is now. Bring it back before
$deadline, and save what you need; it can be hibernated again later.

Bring it back as it was: $restore
""",
    NoticeKind.UNRESTORABLE: """\
Subject: Hibernated session $job can't be brought back at the moment

Job $job ($job_name) sleeps on disk, and no node can restore it now:
$reason.
What was saved is kept. The admins have been told; please ask them what will
become of it.

Look: reclaim show $job
""",
    NoticeKind.BRAKE: """\
Subject: slurm-reclaim on $cluster hibernates nothing any more

The brake was pulled: $reason.
Idle sessions are neither warned nor hibernated until it is released; what
owners ask for is still done.

Look:     reclaim events
Release:  reclaim brake --release
""",
    NoticeKind.STRANDED: """\
Subject: Hibernated sessions on $cluster that no node can restore

$reason.
Their checkpoints are kept, and their owners have been told. A node as they need
it (the GPU driver that was there before, for one) brings them back.

Look:               reclaim list
Before an upgrade:  reclaim check --upgrade --driver VERSION
""",
}
