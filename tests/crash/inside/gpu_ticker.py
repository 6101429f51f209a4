"""The ticker with a (simulated) GPU: a tick is whole where device memory is, too.

gpu_ticker.py FILE: lines as ticker.py's. The client is on every node of a lab with GPUs.
"""

import os
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

loader = SourceFileLoader("cuda_session", "/usr/local/bin/cuda-session")
cuda_session = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(cuda_session)

session = cuda_session.Session(mib=8)
count = 0


def whole() -> bool:
    try:
        return bool(session.verify())
    except cuda_session.CudaError:
        return False


def say(words: str) -> None:
    with open(sys.argv[1], "a") as file:
        file.write(words + "\n")


say("start")
while True:
    count += 1
    say(f"{count} {os.getpid()} {os.uname().nodename} {whole()}")
    time.sleep(0.2)
