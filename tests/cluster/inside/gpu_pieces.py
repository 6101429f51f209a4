"""A session with device memory in many pieces, so that no piece of it needs much of the host's;
run with a file to write to, the number of pieces and their MiB. Lines are those of cuda-session."""

import os
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

loader = SourceFileLoader("cuda_session", "/usr/local/bin/cuda-session")
spec = spec_from_loader("cuda_session", loader)
client = module_from_spec(spec)
sys.modules["cuda_session"] = client
loader.exec_module(client)

out, pieces, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
driver = client.Driver()
driver.call("cuInit", 0)
cards = [client.Card(driver, 0, mib << 20, str(number), False) for number in range(pieces)]
count = 0
while True:
    count += 1
    said = "ok" if all(card.verify() for card in cards) else "bad"
    line = f"{count} {os.getpid()} {os.uname().nodename} {cards[0].uuid()} {said}"
    client.write(out, [line])
    time.sleep(0.3)
