# SPDX-License-Identifier: Apache-2.0
"""The SPANK plugin under a real Slurm, with a stand-in for the agent (fake_agent.py).

Most of it is one question: does a managed job see and do what it would see and do without us?
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Lab

pytestmark = pytest.mark.cluster

NODE = "n1"
FAKE = "/root/fake_agent.py"
LOG = "/root/fake-agent.jsonl"
SOCKET = "/run/slurm-reclaim/agent.sock"
LIBEXEC = "/usr/libexec/slurm-reclaim"
FRESH = ("mode=fresh", "last_pid=299", "block_io_uring=0", "private_tmp=")


class Bench:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.jobs: list[int] = []
        self.out = f"/shared/home/alice/spank-{time.time_ns()}"

    def root(self, text: str, check: bool = True) -> str:
        return self.lab.exec(NODE, "bash", "-c", text, check=check).stdout

    def start_agent(self, *answer: str) -> None:
        self.root(
            f"setsid python3 {FAKE} --log {LOG} {' '.join(answer)} >/root/fake.out 2>&1 "
            "</dev/null & echo $! > /root/fake.pid"
        )
        self.lab.wait("the fake agent", lambda: "ready" in self.root("cat /root/fake.out"))

    def stop_agent(self) -> None:
        self.root(f"[ ! -e /root/fake.pid ] || kill $(cat /root/fake.pid); rm -f /root/fake.pid; "
                  f"rm -f {SOCKET}", check=False)  # fmt: skip

    def answer(self, *words: str) -> None:
        self.root(f"python3 {FAKE} --order op=answer {' '.join(words)}")

    def order(self, job: int, *words: str) -> dict[str, str]:
        return json.loads(self.root(f"python3 {FAKE} --order op=order job={job} {' '.join(words)}"))

    def events(self, job: int) -> list[dict[str, str]]:
        lines = self.root(f"cat {LOG} 2>/dev/null || true").splitlines()
        return [e for e in map(json.loads, lines) if e.get("job") == str(job)]

    def attached(self, job: int) -> dict[str, str]:
        return self.lab.wait(
            f"job {job} attaches",
            lambda: next((e for e in self.events(job) if e.get("op") == "attach"), None),
        )

    def submit(self, text: str, *options: str) -> int:
        job = self.lab.sbatch(
            f"#!/bin/bash\n{text}\n", "-w", NODE, "-o", f"{self.out}-%j", "-D",
            "/shared/home/alice", *options,
        )  # fmt: skip
        self.jobs.append(job)
        return job

    def text(self, job: int) -> str:
        return self.lab.out("ctl", "sh", "-c", f"cat {self.out}-{job} 2>/dev/null || true")

    def has(self, job: int, words: str, patience: float = 30) -> str:
        self.lab.wait(f"{words!r} from job {job}", lambda: words in self.text(job), patience)
        return self.text(job)

    def squeue(self, job: int) -> str:
        return self.lab.exec(
            "ctl", "squeue", "-h", "-j", str(job), "-o", "%T", check=False
        ).stdout.strip()

    def field(self, job: int, name: str) -> str:
        shown = self.lab.out("ctl", "scontrol", "show", "job", str(job))
        return re.search(rf"\b{name}=(\S+)", shown).group(1)

    def ended(self, job: int, patience: float = 40) -> tuple[str, str]:
        """JobState and ExitCode."""

        def done() -> tuple[str, str] | None:
            state = self.field(job, "JobState")
            return None if state in ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING") else (
                state, self.field(job, "ExitCode"))  # fmt: skip

        return self.lab.wait(f"the end of job {job}", done, patience)

    def run(self, text: str, *options: str) -> tuple[str, tuple[str, str]]:
        job = self.submit(text, *options)
        end = self.ended(job)
        return self.text(job), end

    def starts(self, job: int) -> None:
        """A requeued job, without Slurm's two minutes. Slurm sets those late, while the job is
        completing, so asking once is not enough."""

        def running() -> bool:
            self.lab.exec("ctl", "scontrol", "update", f"jobid={job}", "starttime=now", check=False)
            return self.squeue(job) in ("RUNNING", "SPECIAL_EXIT")

        self.lab.wait(f"job {job} starts", running, 60)

    def end_soon(self, *jobs: int, seconds: int = 1) -> None:
        """Their time limit, which can't be shorter than a minute, ends them in so many seconds."""
        for job in jobs:
            self.lab.exec("ctl", "scontrol", "update", f"jobid={job}", f"endtime=now+{seconds}")

    def cancel(self, job: int, *options: str) -> None:
        self.lab.exec("ctl", "scancel", *options, str(job))


@pytest.fixture(scope="module")
def node(lab: Lab) -> Iterator[Lab]:
    """A node with the fake agent's program instead of the real agent."""
    lab.exec(
        NODE,
        "sh",
        "-c",
        f"cat > {FAKE}",
        stdin=Path(__file__).with_name("fake_agent.py").read_text(),
    )
    lab.stop_daemon(NODE, "reclaim-agent")
    yield lab
    lab.start_daemon(NODE, "reclaim-agent")


@pytest.fixture
def bench(node: Lab) -> Iterator[Bench]:
    bench = Bench(node)
    bench.root(f"rm -rf {LOG} /run/slurm-reclaim/missed/*")
    bench.stop_agent()
    bench.start_agent(*FRESH)
    yield bench
    # What ignores SIGTERM would otherwise be waited for until KillWait has passed.
    for job in bench.jobs:
        node.exec("ctl", "scancel", "-s", "KILL", str(job), check=False)
        node.exec("ctl", "scancel", str(job), check=False)
    for job in bench.jobs:
        node.wait(f"job {job} leaves", lambda job=job: not bench.squeue(job), 60)
    bench.stop_agent()


def both(bench: Bench, text: str, *options: str) -> tuple[tuple, tuple]:
    """The same job without us and with us."""
    bench.answer("mode=ignore")
    plain = bench.run(text, *options)
    bench.answer(*FRESH)
    return plain, bench.run(text, *options)


def test_the_option_is_shown(node):
    for command in ("sbatch", "salloc", "srun"):
        assert re.search(r"--reclaim=on\|off +\[reclaim\]", node.out("ctl", command, "--help"))


def test_the_option_arrives(bench):
    for options, want in ((["--reclaim=on"], "on"), (["--reclaim=off"], "off"), ([], "")):
        job = bench.submit("true", *options)
        bench.ended(job)
        assert bench.events(job)[0]["option"] == want
    job = bench.submit("#SBATCH --reclaim=on\ntrue")
    bench.ended(job)
    assert bench.events(job)[0]["option"] == "on"


def test_a_wrong_value_is_refused(node):
    done = node.exec(
        "ctl", "sbatch", "--reclaim=maybe", user="alice", stdin="#!/bin/sh\n", check=False
    )
    assert done.returncode != 0
    assert '--reclaim must be on or off, not "maybe"' in done.stderr


def test_facts_of_the_start(bench):
    job = bench.submit("true", "-J", "my=job 100%", "-n", "1")
    bench.ended(job)
    start = bench.events(job)[0]
    assert (start["op"], start["uid"], start["gid"]) == ("start", "2001", "2001")
    assert start["env.SLURM_JOB_NAME"] == "my=job 100%"
    assert start["env.SLURM_CLUSTER_NAME"] == bench.lab.name
    assert start["env.SLURM_JOB_PARTITION"] == "main"
    assert start["env.SLURM_JOB_NUM_NODES"] == "1"
    assert start["env.SLURM_JOB_ACCOUNT"]


def test_array_task(bench):
    job = bench.submit("sleep 1", "--array=5-5")
    bench.ended(job)
    start = bench.events(job)[0]
    assert start["env.SLURM_ARRAY_TASK_ID"] == "5"
    assert start["env.SLURM_ARRAY_JOB_ID"] == str(job)


def test_own_namespaces(bench):
    text, end = bench.run(
        "echo $$ $SLURM_TASK_PID $PPID; cat /proc/1/comm; ls /dev/pts; ls -A /dev/shm; hostname;"
        "for n in pid mnt net ipc uts user; do readlink /proc/self/ns/$n; done;"
        "python3 -c 'import os; print(os.ttyname(os.openpty()[1]))'"
    )
    assert end == ("COMPLETED", "0:0")
    lines = text.split("\n")
    assert lines[:3] == ["300 300 0", "reclaim-init", "ptmx"]
    assert lines[3] == NODE
    outside = bench.root("for n in pid mnt net ipc uts user; do readlink /proc/self/ns/$n; done")
    same = [a == b for a, b in zip(lines[4:10], outside.split("\n"), strict=False)]
    assert same == [False, False, True, True, True, True]
    assert lines[10] == "/dev/pts/0"


def test_private_tmp(bench):
    bench.answer("mode=fresh", "last_pid=299", "private_tmp=/var/tmp/spank-test")
    text, end = bench.run("ls -A /tmp; echo mine > /tmp/x; cat /tmp/x", "-D", "/tmp")
    assert (text, end) == ("mine", ("COMPLETED", "0:0"))
    assert bench.root("ls -A /tmp | grep -c '^x$'", check=False).strip() == "0"
    assert bench.root("cat /var/tmp/spank-test/tmp/x; rm -r /var/tmp/spank-test") == "mine\n"


DESCRIBE = r"""
#SBATCH --export=ALL
echo args: "$0" "$@" | sed "s/job[0-9]*/jobN/"
pwd; umask; id; ulimit -a; ulimit -Ha
grep -E 'Sig(Blk|Ign|Cgt)|NoNewPrivs|Seccomp:|Cap|Cpus_allowed|Groups' /proc/self/status
for fd in /proc/self/fd/*; do echo $fd $(readlink $fd | sed "s/-[0-9]*$/-N/;s/pipe.*/pipe/"); done
cat /proc/self/oom_score_adj
env | grep -vE 'SLURM_(TASK_PID|JOB_ID|JOBID|JOB_START_TIME|JOB_END_TIME)|^_=|RANDOM' | sort
cat /proc/self/cgroup | sed 's/job_[0-9]*/job_N/' | sort
echo to stderr >&2
nice
cat
"""


def test_nothing_else_is_different(bench):
    """Arguments, directory, limits, signals, descriptors, environment, cgroups, stdio."""
    plain, managed = both(bench, DESCRIBE)
    assert plain[1] == ("COMPLETED", "0:0")
    assert managed == plain
    assert "task_0" in plain[0]


def test_task_prolog_and_tmpdir(bench):
    """Run by Slurm after our hook, in the process that we leave to it."""
    lab, conf = bench.lab, "/etc/slurm/slurm.conf"
    prolog = "/usr/local/sbin/task-prolog"
    nodes = ("ctl", "n1", "n2")
    bench.root(
        f"printf '%s\n' '#!/bin/sh' 'echo print from prolog' 'echo export FROM_PROLOG=yes' "
        f"'echo unset LANG' > {prolog}; chmod 755 {prolog}"
    )
    try:
        for name in nodes:
            lab.exec(name, "sh", "-c", f"echo TaskProlog={prolog} >> {conf}")
        lab.exec("ctl", "scontrol", "reconfigure")
        text = "echo $FROM_PROLOG ${LANG-unset}; ls -ld $TMPDIR | cut -c1-10; echo $TMPDIR"
        plain, managed = both(bench, text, "--export=ALL,TMPDIR=/tmp/spank-tmpdir")
        assert plain[0].split("\n")[:2] == ["from prolog", "yes unset"]
        assert managed == plain
        failing = "'#!/bin/sh' 'exit 7'"
        bench.root(f"printf '%s\n' {failing} > {prolog}")
        plain, managed = both(bench, "echo not reached")
        assert managed[1] == plain[1]
    finally:
        for name in nodes:
            lab.exec(name, "sed", "-i", "/^TaskProlog=/d", conf)
        lab.exec("ctl", "scontrol", "reconfigure")


@pytest.mark.parametrize(
    "text", ["exit 0", "exit 1", "exit 255", "kill -TERM $$", "kill -KILL $$", "kill -USR1 $$",
             "ulimit -c 0; kill -SEGV $$", "exec /nonexistent"],
)  # fmt: skip
def test_exit_status(bench, text):
    plain, managed = both(bench, text)
    assert managed[1] == plain[1]


def test_script_that_cannot_be_run(bench):
    bench.answer("mode=ignore")
    plain = bench.ended(bench.lab.sbatch("#!/nonexistent\n", "-w", NODE, "-o", "/dev/null"))
    bench.answer(*FRESH)
    assert bench.ended(bench.lab.sbatch("#!/nonexistent\n", "-w", NODE, "-o", "/dev/null")) == plain


def test_io_uring(bench):
    program = (
        "import ctypes; l=ctypes.CDLL(None,use_errno=True); l.syscall(425,1,0); "
        "print(ctypes.get_errno())"
    )
    bench.answer("mode=fresh", "last_pid=299", "block_io_uring=1")
    text, _ = bench.run(f"python3 -c '{program}'; grep NoNewPrivs /proc/self/status; sudo -n true; "
                        "su -c true </dev/null; ls -l /bin/su | cut -c4")  # fmt: skip
    assert text.startswith("38\nNoNewPrivs:\t0")


WATCH = r"""
watch() {
    for s in HUP INT QUIT USR1 USR2 TERM CONT TSTP; do trap "echo $1 $s" $s; done
    echo $1 ready
    for i in $(seq 1200); do read -t 0.05 < <(:) || true; command sleep 0.05; done
}
watch mate &
setsid bash -c "$(declare -f watch); watch loner" &
watch script
"""


def listen(bench: Bench) -> int:
    job = bench.submit(WATCH)
    bench.lab.wait("three watchers", lambda: bench.text(job).count("ready") == 3)
    return job


def listeners(bench: Bench) -> list[int]:
    """One without us and one with us, side by side: what is waited for is waited for once."""
    jobs = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        jobs.append(listen(bench))
    return jobs


def heard(bench: Bench, jobs: list[int]) -> list[list[str]]:
    """What the watchers of each job have said, once all have been quiet for two seconds."""
    last, quiet = [""], 0
    while quiet < 5:  # a busy machine takes its time
        time.sleep(0.4)
        now = [bench.text(job) for job in jobs]
        last, quiet = now, quiet + 1 if now == last else 0
    # What bash itself says of a `sleep` that was hit ("Hangup") depends on the moment.
    ours = ("script ", "mate ", "loner ")
    return [
        sorted(x for x in text.split("\n") if x.startswith(ours) and "ready" not in x)
        for text in last
    ]


@pytest.mark.parametrize("how", [(), ("--batch",), ("--full",)])
def test_scancel_with_a_signal(bench, how):
    jobs = listeners(bench)
    for name in ("USR1", "HUP", "TERM", "CONT", "INT"):
        for job in jobs:
            bench.cancel(job, *how, "-s", name)
        plain, managed = heard(bench, jobs)
        assert managed == plain
        assert (f"script {name}" in plain) or not how


def test_suspend_and_resume(bench):
    jobs = listeners(bench)
    for job in jobs:
        bench.lab.exec("ctl", "scontrol", "suspend", str(job))
    for job in jobs:
        bench.lab.wait("suspended", lambda job=job: bench.squeue(job) == "SUSPENDED")
    time.sleep(2.5)
    for job in jobs:
        assert bench.root(f"scontrol listpids {job} | awk 'NR>1{{print $1}}'").split()
        bench.lab.exec("ctl", "scontrol", "resume", str(job))
    plain, managed = heard(bench, jobs)
    assert managed == plain


@pytest.fixture(params=["no", "yes"])
def signal_children(bench, request):
    """Whether Slurm signals the task process or every process of a step."""
    conf = "/etc/slurm/cgroup.conf"
    bench.root(f"echo SignalChildrenProcesses={request.param} >> {conf}")
    bench.lab.restart_daemon(NODE, "slurmd")
    yield request.param
    bench.root(f"sed -i /SignalChildren/d {conf}")
    bench.lab.restart_daemon(NODE, "slurmd")


def test_plain_scancel(bench, signal_children):
    """SIGCONT and SIGTERM, by way of the process tracking; SIGKILL after KillWait."""
    jobs = listeners(bench)
    for job in jobs:
        bench.cancel(job)
    for job in jobs:
        bench.ended(job)
    plain, managed = heard(bench, jobs)
    assert managed == plain
    assert "script TERM" in plain
    assert ("loner TERM" in plain) == (signal_children == "yes")


def test_stopped_and_continued(bench):
    def state() -> str:
        return bench.root("ps -o state= -p $(pgrep -f '^sleep 60.5')").strip()

    states = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        job = bench.submit("echo ready; exec sleep 60.5")
        bench.has(job, "ready")
        for name, want in (("STOP", "T"), ("CONT", "S"), ("TSTP", "T"), ("CONT", "S")):
            bench.cancel(job, "--batch", "-s", name)
            bench.lab.wait(f"{want} after {name} ({answer[0]})",
                           lambda want=want: state() == want, 10)  # fmt: skip
            states.append(want)
        bench.cancel(job)
        bench.ended(job)
    assert len(states) == 8


def test_time_limit(bench):
    """Slurm looks at time limits twice a minute, so all four jobs wait together."""
    jobs = []
    for trap in ("exit 3", "echo got term"):
        for answer in (("mode=ignore",), FRESH):
            bench.answer(*answer)
            text = f"trap '{trap}' TERM; echo ready; while :; do sleep 0.2; done"
            jobs.append(bench.submit(text, "-t", "1"))
            bench.has(jobs[-1], "ready")
    bench.end_soon(*jobs)
    ends = [bench.ended(job, 180) for job in jobs]
    texts = [re.sub(r"[*]{3}.*", "", bench.text(job)) for job in jobs]
    assert [state for state, _ in ends] == ["TIMEOUT"] * 4
    assert (ends[1], texts[1]) == (ends[0], texts[0])
    assert (ends[3], texts[3]) == (ends[2], texts[2])
    assert "got term" in texts[2]


def test_signal_before_the_end(bench):
    jobs = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        text = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.2; done"
        jobs.append(bench.submit(text, "-t", "1", "--signal=B:USR1@59"))
        bench.has(jobs[-1], "ready")
    bench.end_soon(*jobs, seconds=50)
    for job in jobs:
        assert bench.ended(job, 180) == ("COMPLETED", "0:0")
        assert "warned" in bench.text(job)


def test_requeue_runs_the_script_again(bench):
    results = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        job = bench.submit("echo run ${SLURM_RESTART_COUNT-none}; trap 'echo term; exit' TERM; "
                           "while :; do sleep 0.2; done", "--open-mode=append")  # fmt: skip
        bench.has(job, "run none")
        bench.lab.exec("ctl", "scontrol", "requeue", str(job))
        bench.lab.wait("pending", lambda job=job: bench.squeue(job) == "PENDING", 60)
        bench.starts(job)
        bench.has(job, "run 1", 60)
        results.append(re.sub(r"[*]{3}.*", "", bench.text(job)))
        bench.cancel(job)
    assert results[1] == results[0]
    attaches = [e for e in bench.events(job) if e.get("op") == "attach"]
    assert [e["restarts"] for e in attaches] == ["0", "1"]


def test_slurms_own_tools(bench):
    job = bench.submit("sleep 300 & sleep 301")
    hello = bench.attached(job)
    listed = bench.root(f"scontrol listpids {job}")
    for pid in (hello["relay"], hello["child"]):
        assert re.search(rf"^{pid} +{job} +batch", listed, re.M)
    seen = bench.lab.out("ctl", "srun", "--overlap", f"--jobid={job}", "hostname", user="alice")
    assert seen == NODE
    time.sleep(6)
    stat = bench.lab.out("ctl", "sstat", "-anP", "-j", f"{job}.batch", "-o", "Pids,MaxRSS")
    assert hello["child"] in stat


def test_init_and_all_else_is_in_the_task_cgroup(bench):
    job = bench.submit("sleep 300")
    hello = bench.attached(job)
    init = bench.root(f"pgrep -P {hello['relay']} -x reclaim-init").strip()
    relay = bench.root(f"cat /proc/{hello['relay']}/cgroup")
    assert bench.root(f"cat /proc/{init}/cgroup") == relay
    assert bench.root(f"cat /proc/{hello['child']}/cgroup") == relay
    assert f"job_{job}/step_batch" in relay


def test_the_relay_is_small_and_named(bench):
    job = bench.submit("sleep 300")
    hello = bench.attached(job)
    pid = hello["relay"]
    assert bench.root(f"ps -o comm=,args= -p {pid}").split()[:3] == [
        "reclaim-relay",
        "reclaim-relay",
        str(job),
    ]
    assert int(bench.root(f"grep VmRSS /proc/{pid}/status").split()[1]) < 4096
    assert int(bench.root(f"ls /proc/{pid}/fd | wc -l")) <= 6
    job_fds = bench.root(f"readlink /proc/{pid}/fd/1").strip()
    assert job_fds == f"{bench.out}-{job}"


def test_scancel_leaves_nothing(bench):
    before = bench.root("pgrep -x 'reclaim-.*' | wc -l")
    job = bench.submit(
        "setsid sleep 300.5 & (setsid sleep 300.6 &) ; nohup sleep 300.7 & sleep 300.8"
    )
    hello = bench.attached(job)
    bench.cancel(job)
    bench.ended(job)
    bench.lab.wait(
        "no process of it", lambda: not bench.root("pgrep -f '^sleep 300[.]'", check=False)
    )
    bench.lab.wait("no relay", lambda: bench.root("pgrep -x 'reclaim-.*' | wc -l") == before)
    assert bench.root("sinfo -h -n n1 -o %T").strip() in ("idle", "mixed", "completing")
    assert bench.root(f"ls /proc/{hello['relay']} 2>&1", check=False).count("No such file") == 1


def test_double_forked_daemon_stays_below_the_script(bench):
    job = bench.submit("(setsid sh -c 'sleep 300 & exit' &); sleep 1; "
                       "ps -eo ppid=,comm= | grep sleep; echo done; sleep 300")  # fmt: skip
    assert bench.has(job, "done").split()[:2] == ["300", "sleep"]


def test_held_job_ends_as_a_requeue_wants_it(bench):
    """Hold, the tree dies, the job stays; requeuehold; released, it waits for its image."""
    job = bench.submit("echo started; sleep 300", "--open-mode=append")
    hello = bench.attached(job)
    assert bench.order(job, "cmd=hold")["ok"] == "1"
    bench.root(f"kill -9 {hello['child']}")
    time.sleep(2)
    assert bench.squeue(job) == "RUNNING"
    began = time.monotonic()
    bench.lab.exec("ctl", "scontrol", "requeuehold", "State=SpecialExit", str(job))
    bench.lab.wait("held", lambda: bench.squeue(job) == "SPECIAL_EXIT", 60)
    # Not by the SIGKILL that comes after KillWait.
    assert time.monotonic() - began < 5
    bench.answer("mode=restore", "last_pid=20000")
    bench.lab.exec("ctl", "scontrol", "release", str(job))
    bench.starts(job)
    bench.lab.wait("attached", lambda: any(e.get("mode") == "restore" for e in bench.events(job)))
    assert bench.text(job).count("started") == 1
    assert bench.order(job, "cmd=end", "status=768")["ok"] == "1"
    assert bench.ended(job) == ("FAILED", "3:0")


def unmanaged(bench: Bench, problem: str) -> None:
    text, end = bench.run("readlink /proc/self/ns/mnt; exit 5")
    job = bench.jobs[-1]
    assert end == ("FAILED", "5:0")
    assert text == bench.root("readlink /proc/self/ns/mnt").strip()
    note = bench.root(f"cat /run/slurm-reclaim/missed/{job}")
    assert f"job={job}\nuid=2001\n" in note
    assert problem in note


def test_no_agent(bench):
    bench.stop_agent()
    unmanaged(bench, "couldn't reach the agent")


def test_no_run_directory(bench):
    bench.stop_agent()
    bench.root("mv /run/slurm-reclaim /run/slurm-reclaim.away")
    try:
        unmanaged(bench, "No such file")
    finally:
        bench.root("rm -rf /run/slurm-reclaim; mv /run/slurm-reclaim.away /run/slurm-reclaim")


def test_no_libexec(bench):
    bench.root(f"mv {LIBEXEC} {LIBEXEC}.away")
    try:
        unmanaged(bench, "reclaim-init: No such file")
    finally:
        bench.root(f"mv {LIBEXEC}.away {LIBEXEC}")


@pytest.mark.parametrize("libexec", [True, False])
def test_image_and_no_agent(bench, libexec):
    """Never from scratch: parked, then held again, by Slurm itself."""
    job = bench.submit("echo started; sleep 300", "--open-mode=append")
    bench.has(job, "started")
    bench.lab.exec("ctl", "scontrol", "requeuehold", str(job))
    bench.lab.wait("held", lambda: bench.squeue(job) == "PENDING", 60)
    bench.stop_agent()
    store = f"/shared/spank-store-{job}"
    bench.root(
        f"mkdir -p {store}/lab/{job}.2001.1/1; touch {store}/.slurm-reclaim-store;"
        f"touch {store}/lab/{job}.2001.1/1/manifest.json;"
        "cp -a /var/lib/slurm-reclaim/plugin.conf /root/plugin.conf.was 2>/dev/null;"
        f"printf 'store={store}\ncluster=lab\nrestore_wait=2\nscontrol=/usr/bin/scontrol\n"
        "held_state=SpecialExit\n' > /var/lib/slurm-reclaim/plugin.conf"
    )
    if not libexec:
        bench.root(f"mv {LIBEXEC} {LIBEXEC}.away")
    try:
        bench.lab.exec("ctl", "scontrol", "release", str(job))
        bench.starts(job)
        bench.lab.wait("held again", lambda: bench.squeue(job) == "SPECIAL_EXIT", 90)
        assert bench.text(job).count("started") == 1
        assert bench.field(job, "Restarts") == "2"
    finally:
        bench.root(
            f"rm -rf {store} /var/lib/slurm-reclaim/plugin.conf;"
            "mv /root/plugin.conf.was /var/lib/slurm-reclaim/plugin.conf 2>/dev/null;"
            f"mv {LIBEXEC}.away {LIBEXEC} 2>/dev/null", check=False,
        )  # fmt: skip


def test_agent_restart_is_not_noticed_by_the_job(bench):
    job = bench.submit("sleep 8; exit 4")
    bench.attached(job)
    bench.stop_agent()
    time.sleep(1.5)
    bench.root(f"rm -f {LOG}")
    bench.start_agent(*FRESH)
    assert bench.attached(job)["held"] == "0"
    assert bench.ended(job) == ("FAILED", "4:0")


def test_other_steps_are_left_alone(bench):
    """srun, salloc and the extern step: not even asked about."""
    out = bench.lab.out("ctl", "srun", "-w", NODE, "readlink", "/proc/self/ns/mnt", user="alice")
    assert out == bench.root("readlink /proc/self/ns/mnt").strip()
    assert "start" not in bench.root(f"cat {LOG} 2>/dev/null || true")


def test_srun_inside_the_job(bench):
    text, end = bench.run("srun -n1 sh -c 'hostname; echo $SLURM_STEP_ID'; srun -n1 true")
    assert end == ("COMPLETED", "0:0")
    assert text == f"{NODE}\n0"
