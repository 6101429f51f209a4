"""Counts like counter.py, with things open.

opener.py FILE THING...: `MODE:PATH` opens PATH (modes of Python's open), `lib:PATH` maps a library,
`map:PATH` maps a file, `tcp:ADDRESS:PORT` listens, `mib:N` holds memory, `py:TEXT` runs a program.
"""

import ctypes
import mmap
import os
import socket
import sys
import time

path, *things = sys.argv[1:]
kept = []
for thing in things:
    kind, _, what = thing.partition(":")
    if kind == "lib":
        kept.append(ctypes.CDLL(what))
    elif kind == "map":
        file = open(what, "r+b")  # noqa: SIM115 - mapped
        kept.append(mmap.mmap(file.fileno(), 0))
        file.close()
    elif kind == "tcp":
        address, _, port = what.rpartition(":")
        kept.append(socket.create_server((address, int(port))))
    elif kind == "mib":
        kept.append(os.urandom(int(what) << 20))
    elif kind == "py":
        exec(what)
    else:
        kept.append(open(what, kind))  # noqa: SIM115 - held open
count = 0
while True:
    count += 1
    with open(path + ".new", "w") as file:
        file.write(f"{count} {os.getpid()} {os.uname().nodename} True")
    os.rename(path + ".new", path)
    time.sleep(0.2)
