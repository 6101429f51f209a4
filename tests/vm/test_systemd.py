"""The project's units under the systemd that they are written for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.sessions import Counter, only, processes

Start = Callable[..., Counter]
WHERE = {"reclaimd": "ctl", "reclaim-agent": "n1"}


def shown(lab: Lab, node: str, unit: str, name: str) -> str:
    return lab.out(node, "systemctl", "show", "-P", name, unit)


@pytest.mark.parametrize("unit", WHERE)
def test_the_unit_is_understood_whole(lab: Lab, unit: str) -> None:
    path = f"/etc/systemd/system/{unit}.service"
    done = lab.exec(WHERE[unit], "systemd-analyze", "verify", path)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("unit", WHERE)
def test_it_is_ready_when_it_says_so_and_pats_the_watchdog(lab: Lab, unit: str) -> None:
    node = WHERE[unit]
    assert shown(lab, node, unit, "Type") == "notify"
    assert shown(lab, node, unit, "ActiveState") == "active"
    assert shown(lab, node, unit, "WatchdogUSec") == "2min"
    first = shown(lab, node, unit, "WatchdogTimestampMonotonic")
    lab.wait("a pat", lambda: shown(lab, node, unit, "WatchdogTimestampMonotonic") != first)


def test_the_controllers_sandbox_stays_closed(lab: Lab) -> None:
    words = ["systemd-analyze", "security", "--threshold=20", "reclaimd.service"]
    lab.exec("ctl", *words)


@pytest.fixture
def session(counter: Start) -> Counter:
    return counter("-w", "n1")


def test_the_agents_stop_leaves_sessions_alone(lab: Lab, session: Counter) -> None:
    before = session.seen()
    lab.stop_daemon("n1", "reclaim-agent")
    assert session.counts_on().pid == before.pid
    lab.start_daemon("n1", "reclaim-agent")
    session.wait_for_session("ACTIVE")
    session.reclaim("hibernate")
    session.reclaim("restore")
    assert session.counts_on().pid == before.pid


def test_the_agents_death_in_a_restore_leaves_one_life_or_the_image(
    lab: Lab, session: Counter
) -> None:
    """KillMode=process: what the old agent's children have done is seen by the new one. It goes
    on with a tree that is whole, and undoes one that is not."""
    session.reclaim("hibernate")
    before = session.seen()
    lab.exec("ctl", "scontrol", "release", str(session.job))
    lab.wait("CRIU", lambda: not lab.exec("n1", "pgrep", "-x", "criu", check=False).returncode, 120)
    lab.exec("n1", "systemctl", "kill", "--kill-whom=main", "-s", "KILL", "reclaim-agent")
    lab.wait("its recovery", lambda: "agent-recovered" in session.kinds(), 120)
    lab.wait("the outcome", lambda: session.session()["state"] in ("ACTIVE", "HIBERNATED"), 120)
    if session.session()["state"] == "HIBERNATED":
        lab.wait("nothing left", lambda: not processes(lab, "n1"))
        # n1 is all that the job may have: what failed there is tried there again.
        session.reclaim("restore", "--no-wait")
        session.wait_for_session("ACTIVE", 120)
    assert session.counts_on().pid == before.pid
    assert session.seen().count > before.count
    left = lab.out("n1", "cat", "/sys/fs/cgroup/system.slice/reclaim-agent.service/cgroup.procs")
    main = shown(lab, "n1", "reclaim-agent", "MainPID")
    words = ("ps", "-o", "pid=", "--ppid", main)
    assert set(left.split()) <= {main, *lab.exec("n1", *words, check=False).stdout.split()}


def test_the_watchdog_ends_what_hangs_and_no_session(lab: Lab, session: Counter) -> None:
    """Both daemons at once, for the two minutes of their units."""
    mains = {unit: shown(lab, node, unit, "MainPID") for unit, node in WHERE.items()}
    before = session.counts_on()
    for unit, node in WHERE.items():
        lab.exec(node, "kill", "-STOP", mains[unit])

    def anew(unit: str) -> bool:
        now = shown(lab, WHERE[unit], unit, "MainPID")
        return now not in (mains[unit], "0") and (
            shown(lab, WHERE[unit], unit, "ActiveState") == "active"
        )

    for unit in WHERE:
        lab.wait(f"{unit} anew", lambda unit=unit: anew(unit), 90)  # type: ignore[misc]
    for unit, node in WHERE.items():
        said = lab.out(node, "journalctl", "-q", "--no-pager", "-o", "cat", "-u", unit)
        assert "Watchdog timeout" in said
    assert session.counts_on().pid == before.pid
    session.wait_for_session("ACTIVE")
    session.reclaim("hibernate")
    session.reclaim("restore")
    assert session.counts_on().pid == before.pid


def test_after_a_reboot_all_is_there_again(lab: Lab, counter: Start) -> None:
    """One that was hibernated notices nothing. What runs is ended by systemd like all of the node:
    Slurm hears of that from slurmstepd (the job has failed) or not (the node has, and the job is
    requeued), for every job. One that has a checkpoint keeps it in both cases."""
    with only(lab, "n2"):
        saved, held = counter(), counter()
    was = {}
    for job in (saved, held):
        job.reclaim("hibernate")
        was[job] = job.seen()
    with only(lab, "n2"):
        saved.reclaim("restore")
    assert saved.counts_on().node == "n2"
    boot = lab.out("n2", "cat", "/proc/sys/kernel/random/boot_id")
    lab.exec("n2", "systemctl", "reboot", check=False)

    def booted() -> bool:
        done = lab.exec("n2", "cat", "/proc/sys/kernel/random/boot_id", check=False)
        return done.returncode == 0 and done.stdout.strip() != boot

    lab.wait("n2 to boot", booted, 120)
    lab.wait("the agent", lambda: shown(lab, "n2", "reclaim-agent", "ActiveState") == "active", 90)
    assert lab.out("n2", "stat", "-c", "%a %U", "/run/slurm-reclaim") == "711 root"
    words = ["sinfo", "-hn", "n2", "-p", "main", "-o", "%T"]
    lab.wait("n2 well", lambda: lab.out("ctl", *words) in ("idle", "mixed"))
    assert held.session()["state"] == "HIBERNATED"
    held.reclaim("restore")
    assert held.counts_on().pid == was[held].pid
    assert held.seen().count > was[held].count
    lab.wait("the other", lambda: saved.session()["state"] in ("ACTIVE", "ENDED"), 120)
    if saved.session()["state"] == "ACTIVE":
        assert saved.counts_on().pid == was[saved].pid
        assert saved.seen().count > was[saved].count
    else:
        assert lab.job_state(saved.job) == "FAILED"
        listed = lab.out("ctl", "reclaim", "checkpoints", "list", "--json")
        assert saved.session()["session"] in listed
    assert saved.output().count("started") == 1
