"""A session that proves by itself that it was never lost, doubled or set back.

ticker.py FILE: adds a line `count pid node whole` to FILE five times a second, and `start` at its
first. Any two lines that are not one apart tell that it went back, went on twice, or began anew.
"""

import hashlib
import os
import sys
import time

memory = os.urandom(4 << 20)
known = hashlib.sha256(memory).digest()
count = 0


def say(words: str) -> None:
    with open(sys.argv[1], "a") as file:
        file.write(words + "\n")


say("start")
while True:
    count += 1
    whole = hashlib.sha256(memory).digest() == known
    say(f"{count} {os.getpid()} {os.uname().nodename} {whole}")
    time.sleep(0.2)
