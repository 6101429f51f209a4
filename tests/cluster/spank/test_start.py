# SPDX-License-Identifier: Apache-2.0
"""A managed job sees what it would see without us, apart from its own namespaces."""

from __future__ import annotations

import re

import pytest

from tests.cluster.spank.bench import FRESH, NODE, Bench

pytestmark = pytest.mark.cluster


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


def test_the_option_is_not_handed_down(bench):
    """To what is submitted within a job, or in the shell of an allocation, that has it."""
    text = "sbatch --parsable -w n1 -D /tmp -o /dev/null --wrap true"
    for options, want in (("", ""), (" --reclaim=off", "off")):
        inner = text + options
        said, _ = bench.run(inner, "--reclaim=on")
        shell = ("salloc", "-Q", "--reclaim=on", "sh", "-c", inner)
        for job in (int(said), int(bench.lab.out("ctl", *shell, user="alice"))):
            bench.ended(job)
            assert bench.events(job)[0]["option"] == want


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
        bench.root(f"rm -f {prolog}")


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
