"""The smallest session: counts, and says so in a file.

counter.py FILE [MIB]: writes `count pid node` to FILE five times a second; holds MIB of memory that
no two pages of are alike. Ends with the status that FILE.exit holds, when there is one.
"""

import os
import sys
import time

path = sys.argv[1]
memory = os.urandom(int(sys.argv[2]) << 20) if len(sys.argv) > 2 else b""
check = hash(memory)
count = 0
while True:
    count += 1
    with open(path + ".new", "w") as file:
        file.write(f"{count} {os.getpid()} {os.uname().nodename} {hash(memory) == check}")
    os.rename(path + ".new", path)
    if os.path.exists(path + ".exit"):
        with open(path + ".exit") as file:
            sys.exit(int(file.read()))
    time.sleep(0.2)
