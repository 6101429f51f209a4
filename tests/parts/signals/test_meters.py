"""The meters on real processes: what they do is seen, and what is not use is not."""

from __future__ import annotations

import sys
import time

import pytest

from slurm_reclaim.adapters.proc import cgroup, rates
from slurm_reclaim.adapters.proc.census import Census, Processes
from slurm_reclaim.adapters.proc.meters import CpuMeter, IoMeter
from slurm_reclaim.errors import Unavailable

BURN = "end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


def census_of(one):
    """Listed anew at every look: the tests do not wait for half a minute."""
    return Census(one.init, one.relay, one.uid, Processes(), old=0.0)


class Clocked:
    """A meter with the seconds since its last reading, as the agent reads it."""

    def __init__(self, meter):
        self.meter, self.at = meter, time.monotonic()
        meter.read(0.0)

    def read(self):
        now = time.monotonic()
        seconds, self.at = now - self.at, now
        (reading,) = self.meter.read(seconds).values()
        return reading


@pytest.mark.parametrize("cgroups", [True, False], ids=["cgroup", "no cgroup"])
class TestCpu:
    def meter(self, session, cgroups):
        self.one = session(cgroups=cgroups)
        return Clocked(CpuMeter(census_of(self.one)))

    def test_nothing_runs(self, session, cgroups):
        meter = self.meter(session, cgroups)
        time.sleep(0.5)
        assert meter.read().value < 0.05

    def test_a_thread_of_a_waiting_program_counts(self, session, cgroups):
        meter = self.meter(session, cgroups)
        burn = BURN.format(seconds=1.2)
        self.one.run(f"threading.Thread(target=exec, args=({burn!r}, globals())).start()")
        time.sleep(1.0)
        assert meter.read().value > 0.15

    def test_a_background_child_that_left_its_session_counts(self, session, cgroups):
        meter = self.meter(session, cgroups)
        code = f"import time\nexec({BURN.format(seconds=1.2)!r})"
        self.one.run(f"subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True)")
        time.sleep(1.0)
        assert meter.read().value > 0.15

    def test_children_that_come_and_go_between_two_looks_count(self, session, cgroups):
        meter = self.meter(session, cgroups)
        code = f"import time\nexec({BURN.format(seconds=0.4)!r})"
        self.one.run(f"subprocess.run([sys.executable, '-c', {code!r}])")
        assert meter.read().value > 0.15

    def test_a_child_is_not_counted_again_by_the_parent_that_waits_for_it(self, session, cgroups):
        meter = self.meter(session, cgroups)
        code = f"import time\nexec({BURN.format(seconds=0.6)!r})\ninput()"
        self.one.run(
            f"child = subprocess.Popen([sys.executable, '-c', {code!r}], stdin=subprocess.PIPE)"
        )
        time.sleep(1.0)
        assert meter.read().value > 0.1
        self.one.run("child.communicate(b'x')")
        time.sleep(0.3)
        assert meter.read().value < 0.3


def test_a_step_of_the_job_counts_by_cgroup(session):
    one = session()
    meter = Clocked(CpuMeter(census_of(one)))
    step = one.start("step_0")
    try:
        one.run(BURN.format(seconds=0.5), step)
        assert meter.read().value > 0.2
    finally:
        one.end(step)


def test_nobody_to_be_seen_is_unknown(session):
    one = session()
    meter = Clocked(CpuMeter(census_of(one)))
    one.end()
    reading = meter.read()
    assert reading.value is None
    assert "no process" in reading.what


def test_a_counter_that_goes_back_is_unknown_once(session, tmp_path):
    """C56: another cgroup of the same name counts from 0 again."""
    one = session()
    census = census_of(one)
    (tmp_path / "cpuacct.usage").write_text("5000000000\n")
    census.clock = cgroup.CpuClock({"cpuacct": str(tmp_path)})
    meter = Clocked(CpuMeter(census))
    (tmp_path / "cpuacct.usage").write_text("1000000000\n")
    assert meter.read().value is None
    (tmp_path / "cpuacct.usage").write_text("1100000000\n")
    time.sleep(0.5)
    assert 0.05 < meter.read().value < 0.5


def test_an_absurd_value_is_unknown(session, tmp_path):
    one = session()
    census = census_of(one)
    (tmp_path / "cpuacct.usage").write_text("0\n")
    census.clock = cgroup.CpuClock({"cpuacct": str(tmp_path)})
    meter = Clocked(CpuMeter(census))
    (tmp_path / "cpuacct.usage").write_text("99000000000000\n")
    assert meter.read().value is None


def test_io_of_files_counts_and_each_byte_once(session, tmp_path):
    one = session()
    meter = Clocked(IoMeter(census_of(one)))
    time.sleep(0.3)
    assert meter.read().value < 4096
    target = tmp_path / "file"
    code = f"out = open({str(target)!r}, 'wb'); out.write(bytes(50_000_000)); out.flush(); input()"
    one.run(f"child = subprocess.Popen([sys.executable, '-c', {code!r}], stdin=subprocess.PIPE)")
    for _ in range(100):
        if target.exists() and target.stat().st_size == 50_000_000:
            break
        time.sleep(0.1)
    began = meter.at
    assert meter.read().value * (meter.at - began) > 45_000_000
    one.run("child.communicate(b'x')")
    time.sleep(0.3)
    began = meter.at
    assert meter.read().value * (meter.at - began) < 5_000_000


def test_who_is_still_again_counts_no_longer(session):
    one = session()
    meter = Clocked(IoMeter(census_of(one)))
    one.run("open('/dev/null', 'wb').write(bytes(10_000_000))")
    time.sleep(0.3)
    assert meter.read().value > 1_000_000
    time.sleep(0.3)
    assert meter.read().value == 0.0


def test_the_second_look_tells_with_an_old_list_too(session):
    one = session()
    meter = Clocked(IoMeter(Census(one.init, one.relay, one.uid, Processes())))
    one.run("open('/dev/null', 'wb').write(bytes(10_000_000))")
    time.sleep(1.2)  # the list is no longer new
    assert meter.read().value > 1_000_000


def test_io_is_read_in_rotation_and_none_is_left_out(session):
    one = session()
    census = census_of(one)
    one.run(
        "kids = [subprocess.Popen([sys.executable, '-c', "
        '\'for line in open(0): open("/dev/null", "w").write("x" * 10**6)\'], '
        "stdin=subprocess.PIPE) for _ in range(20)]"
    )
    time.sleep(1.0)
    meter = IoMeter(census)
    meter.read(0.0)
    one.run("for kid in kids: kid.stdin.write(b'go\\n'); kid.stdin.flush()")
    time.sleep(1.0)
    seen = set()
    for _ in range(6):
        meter.read(0.2)
        seen |= {pid for pid, c in meter._rates._counters.items() if c.rate > 1000}
        time.sleep(0.05)
    assert len(seen) == 20


@pytest.fixture
def reads(monkeypatch):
    """The PIDs of whom a file was read, in order."""
    done = []
    read = rates._Counter.read
    monkeypatch.setattr(
        rates._Counter, "read", lambda self, name: done.append(self.member.pid) or read(self, name)
    )
    return done


def test_who_has_not_run_is_not_read_and_who_has_is_at_once(session, reads):
    one = session()
    one.run("kids = [subprocess.Popen(['sleep', '99']) for _ in range(20)]")
    time.sleep(0.5)
    meter = Clocked(IoMeter(census_of(one)))
    time.sleep(0.3)
    meter.read()
    reads.clear()
    time.sleep(0.3)
    assert meter.read().value == 0.0
    assert reads == []
    one.run("open('/dev/null', 'wb').write(bytes(10_000_000))")
    time.sleep(0.3)
    assert meter.read().value > 1_000_000
    assert reads == [one.root]


def test_a_thread_of_a_waiting_program_is_read(session):
    one = session()
    meter = Clocked(IoMeter(census_of(one)))
    work = "time.sleep(0.5); open('/dev/null', 'wb').write(bytes(10_000_000))"
    one.run(f"threading.Thread(target=exec, args=({work!r}, globals())).start()")
    time.sleep(0.2)
    meter.read()
    time.sleep(0.8)
    assert meter.read().value > 1_000_000


def test_whose_clock_can_not_be_asked_is_read(session, reads, monkeypatch):
    def refused(clock):
        raise OSError(22, "Invalid argument")

    one = session()
    monkeypatch.setattr(rates.time, "clock_gettime_ns", refused)
    meter = Clocked(IoMeter(census_of(one)))
    for _ in range(3):
        time.sleep(0.1)
        assert meter.read().value is not None
    assert reads.count(one.root) == 4


def test_remote_ides_are_named_and_not_counted(session):
    one = session()
    one.run(
        "subprocess.Popen(['bash', '-c', 'exec -a /home/x/.vscode-server/bin/1/node sleep 60'])"
    )
    time.sleep(0.5)
    meter = Clocked(CpuMeter(census_of(one)))
    time.sleep(0.5)
    reading = meter.read()
    assert reading.what == "VS Code server connected is not use"
    assert reading.value < 0.05


@pytest.mark.parametrize(
    ("program", "kind", "step", "counts"),
    [
        ("/home/x/.vscode-server/bin/1/node", "--type=extensionHost", 1_000, False),
        ("/home/x/.vscode-server/bin/1/node", "--type=extensionHost", 100_000, True),
        ("/home/x/.vscode-server/bin/1/node", "--type=ptyHost", 1_000, True),
        ("/home/x/mine/node", "--type=extensionHost", 1_000, True),
    ],
)
def test_an_ides_search_for_ports_is_no_use_and_all_beyond_it_is(
    session, program, kind, step, counts
):
    """Ten thousand bytes a second, or a million."""
    one = session()
    code = f"import time\nwhile 1: open('/dev/null', 'wb').write(bytes({step})); time.sleep(0.1)"
    shell = f'exec -a {program} {sys.executable} -c "$0" {kind}'
    one.run(f"subprocess.Popen(['bash', '-c', {shell!r}, {code!r}])")
    time.sleep(1.0)
    meter = Clocked(IoMeter(census_of(one)))
    time.sleep(1.0)
    assert (meter.read().value > 4096) == counts


def test_who_serves_the_session_is_not_of_it(session):
    one = session()
    members = census_of(one).members()
    assert one.init not in members
    assert one.relay not in members
    assert members[one.root].inside


def test_a_list_without_the_session_is_no_list(session):
    one = session(cgroups=False)
    census = census_of(one)
    census.members()
    one.end()
    with pytest.raises(Unavailable):
        census.members()
