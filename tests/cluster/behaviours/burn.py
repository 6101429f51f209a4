"""burn.py SHARE: use this share of a core."""

import sys
import time

share = float(sys.argv[1])
while True:
    until = time.process_time() + share * 0.2
    began = time.monotonic()
    while time.process_time() < until:
        pass
    time.sleep(max(0.0, 0.2 - (time.monotonic() - began)))
