"""A controller has two connections from each node, and systemd allows 1024 descriptors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import resource, socket, sys
from slurm_reclaim.daemon import reclaimd

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 4096)))

async def serve(path, config):
    print(len([socket.socketpair() for _ in range(1000)]))

reclaimd._serve = serve
reclaimd.main(["--config", sys.argv[1]], standalone_mode=False)
"""


def test_a_controller_of_many_nodes(tmp_path: Path) -> None:
    config = tmp_path / "reclaim.toml"
    config.write_text("")
    words = [sys.executable, "-c", SCRIPT, str(config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "1000\n", done.stderr
