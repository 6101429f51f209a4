"""A store on which root of the node is not root, as NFS with root_squash has it: root without the
capabilities that let it in is treated alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

LOOK = """
import sys
from pathlib import Path
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.checks import store
from slurm_reclaim.checks.host import Host
from slurm_reclaim.config.schema import Store
from slurm_reclaim.errors import StoreUnavailable

path = Path(sys.argv[1])
try:
    DirectoryStore(path, "test", path, None).check()
except StoreUnavailable as error:
    print(error.message, "->", error.hint)
for check in store.judge(Host(), Store(path=str(path)), None):
    print(check.verdict.name, check.name, check.what, "->", check.hint)
"""


def look(path: Path) -> list[str]:
    caps = "-dac_override,-dac_read_search"
    done = subprocess.run(
        ["setpriv", f"--bounding-set={caps}", sys.executable, "-c", LOOK, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(("owner", "mode"), [(0, 0), (65534, 0o700)], ids=["root's", "nobody's"])
def test_it_is_said_and_what_to_do(tmp_path: Path, owner: int, mode: int) -> None:
    place = tmp_path / "store"
    place.mkdir()
    (place / ".slurm-reclaim-store").touch()
    place.chmod(mode)
    os.chown(place, owner, owner)
    agent, check = look(place)
    assert agent.startswith(f"store {place}")
    assert check.startswith(f"FAILED store as root root of this node may not write to {place}")
    for said in (agent, check):
        assert "no_root_squash" in said
        assert "store.remote" in said
