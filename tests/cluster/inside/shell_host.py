"""A shell on a terminal of 200x50 that whoever writes to files types into.

shell_host.py FILE: types each line of FILE.in as it comes (`^Z` as that key), and appends what the
terminal shows to FILE.out.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios

name = sys.argv[1]
pid, master = pty.fork()
if not pid:
    os.environ.update(PS1="$ ", TERM="vt100", HISTFILE="")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
typed = 0
while True:
    if select.select([master], [], [], 0.05)[0]:
        with open(f"{name}.out", "ab") as out:
            out.write(os.read(master, 65536))
        continue
    if not os.path.exists(f"{name}.in"):
        continue
    with open(f"{name}.in", "rb") as lines:
        lines.seek(typed)
        line = lines.readline()
    if line.endswith(b"\n"):
        typed += len(line)
        os.write(master, {b"^Z\n": b"\x1a"}.get(line, line))
