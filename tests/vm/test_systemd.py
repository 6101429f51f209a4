"""The project's units under the systemd that they are written for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.sessions import Counter

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


@pytest.mark.parametrize("unit", WHERE)
def test_a_daemon_that_hangs_is_started_anew(lab: Lab, unit: str) -> None:
    node = WHERE[unit]
    main = shown(lab, node, unit, "MainPID")
    lab.exec(node, "systemctl", "set-property", "--runtime", unit, "TasksMax=infinity")
    lab.exec(node, "kill", "-STOP", main)
    # What its end at the watchdog does, without the two minutes: SIGABRT from systemd.
    lab.exec(node, "systemctl", "kill", "--kill-whom=main", "-s", "ABRT", unit)
    lab.exec(node, "kill", "-CONT", main, check=False)

    def back() -> bool:
        now = shown(lab, node, unit, "MainPID")
        return now not in (main, "0") and shown(lab, node, unit, "ActiveState") == "active"

    lab.wait(f"{unit} anew", back, 90)


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


def test_the_agents_death_in_a_restore_leaves_criu_alone(lab: Lab, session: Counter) -> None:
    """KillMode=process: the new agent finds what the old one's CRIU has done or is doing."""
    session.reclaim("hibernate")
    before = session.seen()
    lab.exec("ctl", "scontrol", "release", str(session.job))
    lab.wait("CRIU", lambda: not lab.exec("n1", "pgrep", "-x", "criu", check=False).returncode, 120)
    lab.exec("n1", "systemctl", "kill", "--kill-whom=main", "-s", "KILL", "reclaim-agent")
    session.wait_for_session("ACTIVE", 120)
    assert session.counts_on().count > before.count


def test_after_a_reboot_all_is_there_again(lab: Lab) -> None:
    boot = lab.out("n2", "cat", "/proc/sys/kernel/random/boot_id")
    lab.exec("n2", "systemctl", "reboot", check=False)

    def booted() -> bool:
        done = lab.exec("n2", "cat", "/proc/sys/kernel/random/boot_id", check=False)
        return done.returncode == 0 and done.stdout.strip() != boot

    lab.wait("n2 to boot", booted, 120)
    ready = "idle" in lab.out("ctl", "sinfo", "-hn", "n2", "-p", "main", "-o", "%T")
    lab.wait("the agent", lambda: shown(lab, "n2", "reclaim-agent", "ActiveState") == "active", 90)
    assert lab.out("n2", "stat", "-c", "%a %U", "/run/slurm-reclaim") == "711 root"
    assert ready or lab.wait(
        "n2 idle", lambda: "idle" in lab.out("ctl", "sinfo", "-hn", "n2", "-p", "main", "-o", "%T")
    )
