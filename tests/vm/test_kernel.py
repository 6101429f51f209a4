"""What Debian's kernel says otherwise than newer ones."""

from __future__ import annotations

from tests.cluster.conftest import Lab

# Its child goes on in its session, so that its number is still in use when it was reaped.
GONE = """
import os, signal, subprocess, time
from slurm_reclaim.adapters.proc import tree
leader = subprocess.Popen(
    ["sh", "-c", "sleep 60 & echo $!; read x"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
)
child = tree.read(int(leader.stdout.readline()))
first = tree.read(leader.pid)
leader.stdin.write("end\\n")
leader.stdin.close()
leader.wait()
try:
    os.pidfd_open(leader.pid)
except OSError as error:
    print(error.strerror)
tree.signal_all([first, child], signal.SIGKILL)
deadline = time.monotonic() + 20
while (left := tree.read(child.pid)) is not None and left.state != "Z":
    assert time.monotonic() < deadline
    time.sleep(0.05)
print("killed")
"""


def test_a_script_that_was_reaped_first_does_not_save_its_children(lab: Lab) -> None:
    said = lab.out("n1", "/opt/slurm-reclaim/bin/python", "-c", GONE)
    assert said.splitlines() == ["Invalid argument", "killed"]
