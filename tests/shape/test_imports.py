"""What the agent loads, and what it loads only where it is configured or at work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Of remote places; of what only a hibernation or restore needs; of the controller; of the command
# line; and of the program that asks the cards.
REMOTE = {"fsspec", "s3fs", "gcsfs", "botocore"}
OURS_OF_REMOTE = {
    f"slurm_reclaim.adapters.store.{name}"
    for name in ("bucket", "copies", "fetch", "remote", "remote_collection", "uploads")
}
LATE = {"cuda", "xxhash", "zoneinfo", "difflib"}
OTHERS = {"google.protobuf", "sqlalchemy", "apscheduler", "sqlite3", "pyslurm", "jinja2", "pynvml",
          "psutil", "aiohttp", "multiprocessing", "statistics", "xml", "http.server"}  # fmt: skip


def loaded(code: str, *words: str) -> set[str]:
    code = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_no_library_of_a_remote_place_is_loaded_without_one() -> None:
    modules = loaded("import slurm_reclaim.daemon.reclaim_agent, slurm_reclaim.daemon.reclaimd")
    assert not modules & REMOTE


def test_an_agent_that_watches_and_saves_nothing_carries_only_that() -> None:
    modules = loaded("import slurm_reclaim.daemon.reclaim_agent")
    assert not modules & (REMOTE | OURS_OF_REMOTE | LATE | OTHERS)


def test_nor_does_it_carry_more_when_it_has_asked_criu_of_the_processor(tmp_path: Path) -> None:
    """Which it does at every start. Stands for CRIU: what `criu cpuinfo dump` of 4.2.1 writes."""
    entry = bytes.fromhex("0801 1006 186a 2001 5090 15".replace(" ", ""))
    image = bytes.fromhex("19435654 52343245") + bytes([len(entry) + 2, 0, 0, 0])
    image += bytes([0x0A, len(entry)]) + entry
    (tmp_path / "image").write_bytes(image)
    criu = tmp_path / "criu"
    criu.write_text(f'#!/bin/sh\ncp "{tmp_path}/image" "$5/cpuinfo.img"\n')
    criu.chmod(0o755)
    modules = loaded(
        "import slurm_reclaim.daemon.reclaim_agent\n"
        "from slurm_reclaim.adapters.criu import processor\n"
        "assert processor.xsave_size(sys.argv[1]) == 2704",
        str(criu),
    )
    assert not modules & (REMOTE | LATE | OTHERS)
