"""What becomes of checkpoints as time goes by (S6), with retention in seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.policy import policy
from tests.cluster.sessions import Counter

pytestmark = pytest.mark.cluster

STORE = "/shared/reclaim"
KEEP = """
[retention]
interval = "1s"
ended = "{ended}"
least = "0s"
per_session = {per_session}
hibernated = "{hibernated}"
notice = "{notice}"
notice_again = "1s"
user_quota = "{quota}"
owner_pins = 1
"""


# Slurm forgets a finished job at its next sweep: one a minute, or every ten seconds where it was
# started with a short MinJobAge (told by reconfigure it goes on as before).
FORGETS = 150.0  # seconds


@pytest.fixture(scope="module", autouse=True)
def forgetful(lab: Lab) -> Iterator[None]:
    """Slurm forgets finished jobs soon: while it shows one, it could still be requeued."""

    def set_age(before: int, after: int) -> None:
        change = f"s/^MinJobAge={before}$/MinJobAge={after}/"
        for node in ("ctl", "n1", "n2"):
            lab.exec(node, "sed", "-i", change, "/etc/slurm/slurm.conf")
        lab.restart_daemon("ctl", "slurmctld")

    try:
        set_age(300, 2)
        yield
    finally:
        set_age(2, 300)


@pytest.fixture(scope="module", autouse=True)
def unpinned(lab: Lab) -> None:
    """A run that failed may have left pins, and an owner may have one only."""
    done = lab.exec("ctl", "reclaim", "checkpoints", "list", "--json", check=False)
    for each in json.loads(done.stdout).get("checkpoints", []):
        if each["pins"]:
            reclaim(lab, "unpin", f"{each['session']}/{each['restarts']}", check=False)


def retention(
    lab: Lab,
    mode: str = "prod",
    *,
    ended: str = "1s",
    per_session: int = 1,
    hibernated: str = "0s",
    notice: str = "3s",
    quota: str = "0B",
):
    """The idle clock is left far away: only retention acts."""
    more = KEEP.format(
        ended=ended, per_session=per_session, hibernated=hibernated, notice=notice, quota=quota
    )
    return policy(lab, mode=mode, window="2h", grace="1h", more=more)


@pytest.fixture
def slow(lab: Lab) -> Iterator[None]:
    with retention(lab, ended="1h", per_session=5):
        yield


def reclaim(lab: Lab, *words: str, user: str = "root", node: str = "ctl", check: bool = True):
    return lab.exec(node, "reclaim", "checkpoints", *words, user=user, check=check)


def listed(lab: Lab, job: Counter, user: str = "root") -> dict[int, dict]:
    """By restart count."""
    found = json.loads(reclaim(lab, "list", "--json", user=user).stdout)["checkpoints"]
    return {each["restarts"]: each for each in found if each["job"] == str(job.job)}


def stored(lab: Lab, job: Counter) -> list[str]:
    """What of a session is really in the store, whoever says what."""
    place = f"{STORE}/*/{job.job}.*"
    done = lab.exec(
        "n1", "sh", "-c", f"ls -d {place}/[0-9]* {place}/.[a-z]* 2>/dev/null", check=False
    )
    return [line.rpartition("/")[2] for line in done.stdout.split()]


def again(job: Counter, times: int) -> None:
    for _ in range(times):
        job.reclaim("hibernate")
        job.reclaim("restore")
        job.counts_on()


def test_what_ended_goes_and_what_sleeps_stays(lab, counter):
    asleep, over = counter(), counter()
    over.reclaim("hibernate")
    asleep.reclaim("hibernate")
    with retention(lab, ended="6s", quota="1B"):
        lab.wait("both listed", lambda: listed(lab, over) and listed(lab, asleep))
        lab.exec("ctl", "scancel", str(over.job))
        over.wait_for_session("ENDED")
        lab.wait("the ended one to go", lambda: stored(lab, over) == [], FORGETS)
        lab.wait("the event", lambda: "checkpoint-expired" in over.kinds())
        # Far over its quota, for many passes: it is all there is of that session.
        assert stored(lab, asleep) == ["0"]
        assert "all there is" in listed(lab, asleep)[0]["kept"]
        fresh = counter()
        refused = fresh.reclaim("hibernate", check=False)
        assert refused.returncode == 21
        assert "quota: alice has" in refused.stderr
        assert fresh.session()["state"] == "ACTIVE"
    asleep.reclaim("restore")
    asleep.counts_on()


def test_a_newer_checkpoint_takes_the_place_of_older_ones(lab, counter):
    job = counter(mib=20)
    with retention(lab, per_session=2):
        again(job, 4)
        lab.wait("the old ones to go", lambda: stored(lab, job) == ["2", "3"], 40)
        job.reclaim("hibernate")
        lab.wait("one more to go", lambda: stored(lab, job) == ["3", "4"], 40)
        seen = job.seen()
        job.reclaim("restore")
        assert job.counts_on().pid == seen.pid
        assert json.loads(reclaim(lab, "verify", f"{job.job}/4", "--json").stdout)["differs"] == []


def test_in_shadow_mode_nothing_is_deleted(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    with retention(lab, "shadow"):
        job.cancel()
        job.wait_for_session("ENDED")
        lab.wait("it would go", lambda: "ended" in listed(lab, job)[0]["kept"])
        lab.exec("ctl", "sleep", "5")
        assert stored(lab, job) == ["0"]


def test_while_slurm_is_silent_nothing_is_deleted(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    with retention(lab, ended="8s"):
        job.cancel()
        job.wait_for_session("ENDED")
        lab.stop_daemon("ctl", "slurmctld")
        try:
            lab.exec("ctl", "sleep", "15")
            assert stored(lab, job) == ["0"]
        finally:
            lab.start_daemon("ctl", "slurmctld")
        lab.wait("it to go then", lambda: stored(lab, job) == [], FORGETS)


def test_pins(lab, counter, slow):
    job = counter()
    again(job, 2)
    assert sorted(listed(lab, job, "alice")) == [0, 1]
    assert listed(lab, job, "bob") == {}
    assert reclaim(lab, "pin", f"{job.job}/0", user="bob", check=False).returncode == 26
    reclaim(lab, "pin", f"{job.job}/0", "--reason", "thesis", user="alice")
    many = reclaim(lab, "pin", f"{job.job}/1", user="alice", check=False)
    assert many.returncode == 20
    assert "owner_pins" in many.stderr
    reclaim(lab, "pin", f"{job.job}/1")
    assert reclaim(lab, "unpin", f"{job.job}/1", user="alice", check=False).returncode == 26
    assert reclaim(lab, "expire", f"{job.job}/0", check=False).returncode == 20
    job.cancel()
    job.wait_for_session("ENDED")
    with retention(lab):
        lab.wait("the pins", lambda: all(c["pins"] for c in listed(lab, job).values()))
        lab.exec("ctl", "sleep", "5")
        assert stored(lab, job) == ["0", "1"]
        reclaim(lab, "unpin", f"{job.job}/1")
        lab.wait("what is not pinned to go", lambda: stored(lab, job) == ["0"], FORGETS)
        reclaim(lab, "unpin", f"{job.job}/0", user="alice")
        lab.wait("the other", lambda: stored(lab, job) == [], 40)


def test_what_a_living_session_needs_can_not_be_expired_by_hand(lab, counter, slow):
    job = counter()
    again(job, 2)
    for who in ("alice", "root"):
        refused = reclaim(lab, "expire", f"{job.job}/1", user=who, check=False)
        assert refused.returncode == 20
        assert "newest" in refused.stderr
    reclaim(lab, "expire", f"{job.job}/0", user="alice")
    assert stored(lab, job) == ["1"]
    job.reclaim("hibernate")
    assert reclaim(lab, "expire", str(job.job), check=False).returncode == 20
    job.reclaim("restore")
    job.counts_on()


def test_verify_names_what_differs(lab, counter, slow):
    job = counter()
    job.reclaim("hibernate")
    assert "every byte" in reclaim(lab, "verify", str(job.job)).stdout
    assert reclaim(lab, "verify", str(job.job), user="alice", check=False).returncode == 26
    parts = json.loads(reclaim(lab, "show", str(job.job), "--json", user="alice").stdout)["parts"]
    victim = next(part["path"] for part in parts if part["path"].startswith("packs/"))
    place = f"{STORE}/*/{job.job}.*/{victim}"
    lab.exec("n1", "sh", "-c", f"printf x | dd of=$(echo {place}) bs=1 seek=9 conv=notrunc")
    spoiled = reclaim(lab, "verify", str(job.job), check=False)
    assert spoiled.returncode == 50
    assert f"of {victim.removeprefix('packs/')} is not what was written" in spoiled.stderr


def test_an_export_is_a_checkpoint_again(lab, counter, slow):
    """Taken out of the store, deleted there, put back: the session goes on."""
    job = counter(mib=20)
    job.reclaim("hibernate")
    count = job.seen()
    file = f"/root/{job.job}.tar"
    assert reclaim(
        lab, "export", str(job.job), file, node="ctl", user="alice", check=False
    ).returncode
    reclaim(lab, "export", str(job.job), file, node="n1")
    lab.exec("n1", "sh", "-c", f"rm -r {STORE}/*/{job.job}.*")
    assert stored(lab, job) == []
    lab.exec("n1", "sh", "-c", f"tar -x -p -f {file} -C $(ls -d {STORE}/*/ | head -1); rm {file}")
    job.reclaim("restore")
    after = job.counts_on()
    assert (after.pid, after.memory) == (count.pid, True)
    assert after.count > count.count


def test_an_owner_is_told_before_a_session_ends_by_age(lab, counter):
    told, pinned = counter(), counter()
    for job in (told, pinned):
        job.reclaim("hibernate")
    reclaim(lab, "pin", str(pinned.job), user="alice")
    with retention(lab, ended="50s", hibernated="1s", notice="6s"):
        lab.wait("the notice", lambda: "expiry-told" in told.kinds(), 40)
        assert told.session()["state"] == "HIBERNATED"
        assert "ends " in told.squeue("%k")
        told.wait_for_session("ENDED")
        assert "retention-expired" in told.kinds()
        said = lab.out("ctl", "cat", "/shared/notices.jsonl").splitlines()
        notices = [json.loads(line) for line in said if line.strip()]
        mine = [n for n in notices if n["job_id"] == told.job and n["kind"] == "expiry"]
        assert mine
        assert mine[0]["deadline"] > 0
        # The job is over, its image stays for `ended`, and then goes.
        show = ("squeue", "-h", "-t", "all", "-j", str(told.job), "-o", "%T")
        left = lab.exec("ctl", *show, check=False).stdout.strip()
        assert left in ("", "CANCELLED")
        assert stored(lab, told) == ["0"]
        lab.wait("its image to go", lambda: stored(lab, told) == [], FORGETS)
        assert pinned.session()["state"] == "HIBERNATED"
        assert "expiry-told" not in pinned.kinds()
    reclaim(lab, "unpin", str(pinned.job), user="alice")
    pinned.reclaim("restore")
    pinned.counts_on()


def test_without_a_notice_that_arrived_no_session_ends(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    with retention(lab, hibernated="1s", notice="2s"):
        lab.exec(
            "ctl", "sh", "-c", "printf '#!/bin/sh\\nexit 1\\n' > /etc/slurm-reclaim/hooks.d/50-test"
        )
        # Told before the hook was broken? Then the next hibernation is the one to look at.
        if "expiry-told" in job.kinds():
            pytest.skip("told before the hook was broken")
        lab.wait("it was tried", lambda: "expiry-not-told" in job.kinds(), 40)
        lab.exec("ctl", "sleep", "6")
        assert job.session()["state"] == "HIBERNATED"
    job.reclaim("restore")
    job.counts_on()


def test_sessions_that_the_journal_does_not_know_are_kept(lab, counter):
    """A journal that was lost: nothing is known of what lies in the store."""
    job = counter()
    job.reclaim("hibernate")
    job.cancel()
    job.wait_for_session("ENDED")
    state = "/var/lib/slurm-reclaim/controller"
    lab.stop_daemon("ctl", "reclaimd")
    lab.exec("ctl", "sh", "-c", f"mkdir -p /root/saved && mv {state}/journal.sqlite* /root/saved/")
    try:
        with retention(lab, ended="0s"):
            lab.wait("an orphan", lambda: listed(lab, job).get(0, {}).get("state") == "ORPHAN", 40)
            lab.exec("ctl", "sleep", "6")
            assert stored(lab, job) == ["0"]
            assert reclaim(lab, "expire", str(job.job), user="alice", check=False).returncode == 26
            lab.wait(
                "an admin's word to do",
                lambda: reclaim(lab, "expire", str(job.job), check=False).returncode == 0,
                FORGETS,
            )
            assert stored(lab, job) == []
    finally:
        lab.stop_daemon("ctl", "reclaimd")
        lab.exec("ctl", "sh", "-c", f"cp -p /root/saved/* {state}/; rm -rf /root/saved")
        lab.start_daemon("ctl", "reclaimd")
