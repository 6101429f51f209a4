"""Writes the pages and files that are made from the code: `make docs`. A unit test compares.

The source of each is the code itself (settings, errors, the lifecycle table); what stands here is
only the words around them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from slurm_reclaim import errors
from slurm_reclaim.adapters.notify.builtin import TEXTS
from slurm_reclaim.config import render
from slurm_reclaim.model.lifecycle import TABLE, Fact, State

ROOT = Path(__file__).parents[1]

# One sentence a state, as owners see it.
STATES = {
    State.ACTIVE: "It runs and is used, or not known to be idle.",
    State.IDLE: "It runs; nothing was seen of its owner for as long as the policy asks.",
    State.WARNED: "It runs; the owner was told when it will be hibernated.",
    State.HIBERNATING: "It is frozen and written to disk. Until the checkpoint is committed, any "
    "failure lets it run on.",
    State.REQUEUING: "The checkpoint is committed, the processes are gone; Slurm requeues the job.",
    State.HIBERNATED: "The job is held under its job id (`squeue` shows `SE`), its resources are "
    "free.",
    State.QUEUED: "Released: it waits in the queue for a node that fits.",
    State.RESTORING: "The job has started; its processes are brought back.",
    State.FAILED: "It can't be restored. The checkpoint is kept; an administrator is needed.",
    State.ENDED: "The job is over.",
}

FACTS = {
    Fact.IDLE_CONFIRMED: "all signals were idle, without a gap, for long enough",
    Fact.ACTIVITY_SEEN: "it was used again, or the owner said keep",
    Fact.NOTICE_DELIVERED: "the owner was told the deadline",
    Fact.PREFLIGHT_REFUSED: "it can't be hibernated; the blockers are named",
    Fact.WITHDRAWN: "it is not sure any more, or not wanted: the reason says what changed",
    Fact.DEADLINE_PASSED: "the deadline passed and it is still idle",
    Fact.HIBERNATE_ASKED: "asked for: by the owner, an operator, or a rule",
    Fact.DUMP_FAILED: "the dump failed; the processes were seen alive again",
    Fact.CHECKPOINT_COMMITTED: "complete, hashed, on disk, read again, manifest in place",
    Fact.REQUEUE_OBSERVED: "Slurm shows the job held, restart count one higher",
    Fact.REQUEUE_REFUSED: "Slurm said no, or its owner kept it; it is restored in place",
    Fact.RELEASED: "`reclaim restore`, or the owner's own `scontrol release`",
    Fact.HELD_AGAIN: "held again before it started",
    Fact.JOB_STARTED: "Slurm started the job on a node",
    Fact.RESTORE_SUCCEEDED: "the processes were seen alive",
    Fact.RESTORE_FAILED: "the restore failed there; held again, another node next time",
    Fact.RESTORE_IMPOSSIBLE: "no node can restore it",
    Fact.NODE_LOST: "the node died, and Slurm has requeued the job",
    Fact.RETENTION_EXPIRED: "kept for as long as the site keeps checkpoints; the owner was told",
    Fact.JOB_GONE: "Slurm positively says that the job is over",
}

MARK = "<!-- Rendered from {} by `make docs`; changes here are lost. -->\n"


def lifecycle() -> str:
    parts = [
        "# The life of a session\n",
        MARK.format("slurm_reclaim/model/lifecycle.py"),
        "A session is one interactive job under our care, through all its requeues. It changes its "
        "state only\nby the facts below: something that was seen, never something that was hoped "
        "for. A fact that does not\nstand in a state's row can't happen there; the controller "
        "refuses it as an error of its own.\n",
        "One truth at a time: until `checkpoint-committed` the process tree is the session; after "
        "it, the image\nis; `restore-succeeded` gives it back to the tree.\n",
        "## States\n",
        "| state | |\n|---|---|\n" + "".join(f"| {s} | {STATES[s]} |\n" for s in State),
        "## Picture\n",
        "```mermaid\nstateDiagram-v2\n    [*] --> ACTIVE\n" + "".join(_arrows()) + "```\n",
        "Left out of the picture: `job-gone` leads from every state to ENDED.\n",
        "## Table\n",
        "| from | fact | to | meaning |\n|---|---|---|---|\n" + "".join(_rows()),
    ]
    return "\n".join(parts)


def _arrows() -> Iterator[str]:
    """Facts between the same two states share an arrow."""
    shared: dict[tuple[State, State], list[str]] = {}
    for before, fact, after in _transitions():
        if fact is not Fact.JOB_GONE:
            shared.setdefault((before, after), []).append(str(fact))
    for (before, after), facts in shared.items():
        yield f"    {before} --> {after}: {', '.join(facts)}\n"
    yield "    ENDED --> [*]\n"


def _rows() -> Iterator[str]:
    for before, fact, after in _transitions():
        yield f"| {before} | `{fact}` | {after} | {FACTS[fact]} |\n"


def _transitions() -> Iterator[tuple[State, Fact, State]]:
    """In the order of the enums: the table's own order differs between two runs, where it is
    filled from sets."""
    for state in State:
        for fact in Fact:
            if (state, fact) in TABLE:
                yield state, fact, TABLE[state, fact]


def error_page() -> str:
    return "\n".join(
        [
            "# Errors and exit codes\n",
            MARK.format("slurm_reclaim/errors.py"),
            "Every error is one message that begins with `reclaim: ` on standard error, and a hint "
            "where there is\nsomething to do. With `--json` it is on standard output, too: "
            '`{"error": "WrongState", "message": "...",\n"hint": "...", "exit_code": 27}`. '
            "`RECLAIM_DEBUG=1` shows the traceback.\n",
            "| codes | family | nothing changed? | try again? |\n|---|---|---|---|\n"
            "| 0 | done | | |\n"
            "| 1 | `reclaim check`: something failed | yes | |\n"
            "| 2 | wrong usage of the command | yes | no |\n"
            "| 20-29 | refused: we chose not to | yes | no, unless the reason is gone |\n"
            "| 30-39 | unavailable: no answer, which says nothing about the session | unknown: "
            "`reclaim show` | yes |\n"
            "| 40-49 | failed: it was tried | the session runs on, or its checkpoint is kept | "
            "maybe |\n"
            "| 130 | interrupted while waiting | the work goes on | |\n",
            "| code | error | |\n|---|---|---|\n" + "".join(_error_rows()),
        ]
    )


def _error_rows() -> Iterator[str]:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.ReclaimError)
    ]
    for kind in sorted(kinds, key=lambda kind: kind.exit_code):
        sentence = " ".join((kind.__doc__ or "").split())
        yield f"| {kind.exit_code} | `{kind.__name__}` | {sentence} |\n"


RENDERED: dict[str, Callable[[], str]] = {
    "etc/slurm-reclaim.toml": render.sample,
    "docs/configuration.md": render.page,
    "docs/errors.md": error_page,
    "docs/lifecycle.md": lifecycle,
    **{f"etc/notices/{kind.value}.txt": partial(str, text) for kind, text in TEXTS.items()},
}


def main() -> None:
    for name, make in RENDERED.items():
        text = make()
        (ROOT / name).parent.mkdir(exist_ok=True)
        if not (ROOT / name).exists() or (ROOT / name).read_text() != text:
            (ROOT / name).write_text(text)
            sys.stdout.write(f"wrote {name}\n")


if __name__ == "__main__":
    main()
