"""Runs on a node, with the agent's Python: what NVML shows of each card, and the state by the
driver of every process of a user, as JSON."""

import json
import sys

import pynvml

from slurm_reclaim.adapters.cuda import holders
from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.proc import tree

uid = sys.argv[1]
pynvml.nvmlInit()
cards = {}
for index in range(pynvml.nvmlDeviceGetCount()):
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(card)
    cards[pynvml.nvmlDeviceGetUUID(card)] = sum(each.usedGpuMemory for each in listed)
own = [tree.read(int(p.name)) for p in tree.PROC.iterdir() if p.name.isdigit()]
own = [p for p in own if p is not None and p.status["Uid"].split()[0] == uid]
states = {}
with Driver("/usr/local/bin/cuda-checkpoint") as driver:
    for holder in holders.find(own):
        if driver.has_state(holder.process):
            states[holder.process.inner] = driver.state(holder.process)
print(json.dumps({"held": cards, "states": states}))
