"""typist.py SECONDS COMMAND...: run a command on a terminal of its own and type a line into it
every so many seconds; 0 never. It is typed on the other side of the terminal, as sshd does it."""

import os
import pty
import select
import sys
import time

seconds, command = float(sys.argv[1]), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
following = time.monotonic() + 1
while True:
    wait = max(0.0, following - time.monotonic()) if seconds else None
    ready, _, _ = select.select([fd], [], [], wait)
    if ready:
        try:
            os.read(fd, 65536)
        except OSError:
            break
    elif seconds:
        os.write(fd, b"\n")
        following = time.monotonic() + seconds
