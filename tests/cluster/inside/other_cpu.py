#!/usr/bin/python3
"""CRIU as it is where the CPU saves 64 bytes less of registers: `criu cpuinfo dump` says so."""

import os
import subprocess
import sys

import pycriu.images

CRIU = "/usr/sbin/criu"
words = sys.argv[1:]
if words[:2] != ["cpuinfo", "dump"]:
    os.execv(CRIU, [CRIU, *words])
subprocess.run([CRIU, *words], check=True)
path = os.path.join(words[words.index("-D") + 1], "cpuinfo.img")
with open(path, "rb") as file:
    image = pycriu.images.load(file)
image["entries"][0]["x86_entry"][0]["xsave_size_max"] -= 64
with open(path, "wb") as file:
    pycriu.images.dump(image, file)
