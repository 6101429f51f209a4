"""`make install`: a plugin that lies where Slurm doesn't look is told of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SPANK = Path(__file__).parents[3] / "spank"
PROGRAMS = ("reclaim.so", "reclaim-init", "reclaim-relay", "reclaim-exec")


@pytest.mark.parametrize(
    ("beside", "destdir", "told"),
    [(True, False, False), (False, False, True), (False, True, False)],
)
def test_where_the_plugin_goes(tmp_path: Path, beside: bool, destdir: bool, told: bool) -> None:
    build, plugins = tmp_path / "build", tmp_path / "slurm"
    for folder in (build, plugins):
        folder.mkdir()
    for name in PROGRAMS:
        (build / name).touch()
    (build / "slurm-version").write_text("24.11.5\n")
    if beside:
        (plugins / "proctrack_cgroup.so").touch()
    done = subprocess.run(
        ["make", "-C", str(SPANK), "-o", "all", "install", f"BUILD={build}",
         f"PLUGINDIR={plugins}", f"LIBEXECDIR={tmp_path}/libexec",
         *([f"DESTDIR={tmp_path}/image"] if destdir else [])],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    top = f"{tmp_path}/image" if destdir else ""
    assert Path(f"{top}{plugins}/reclaim.so").exists()
    modes = {
        name: Path(f"{top}{tmp_path}/libexec/{name}").stat().st_mode & 0o777
        for name in PROGRAMS[1:]
    }
    assert modes == {"reclaim-init": 0o755, "reclaim-relay": 0o711, "reclaim-exec": 0o755}
    # By this link the agent finds it wherever Slurm's plugins are.
    libexec = Path(f"{top}{tmp_path}/libexec")
    assert (libexec / "plugin").readlink() == plugins / "reclaim.so"
    assert (libexec / "slurm-version").read_text() == "24.11.5\n"
    assert not list(libexec.glob("*.so")), "CRIU would load it as a plugin of its own"
    assert ("none of Slurm's own plugins" in done.stderr) is told
    assert (str(plugins) in done.stderr) is told
