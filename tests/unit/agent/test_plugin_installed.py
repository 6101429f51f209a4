"""Where the agent finds the SPANK plugin: without it no session is restored on its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_reclaim.adapters.criu.facts import plugin_installed

PROGRAMS = ("reclaim-init", "reclaim-relay", "reclaim-exec")


@pytest.fixture
def libexec(tmp_path: Path) -> Path:
    place = tmp_path / "usr/libexec/slurm-reclaim"
    place.mkdir(parents=True)
    for name in PROGRAMS:
        (place / name).touch(0o755)
    return place


def put(plugin: Path) -> Path:
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    return plugin


def test_no_plugin(tmp_path: Path, libexec: Path) -> None:
    assert not plugin_installed(libexec, tmp_path)


@pytest.mark.parametrize("folder", ["usr/lib64/slurm", "usr/lib/x86_64-linux-gnu/slurm-wlm"])
def test_a_copy_in_a_usual_place(tmp_path: Path, libexec: Path, folder: str) -> None:
    put(tmp_path / folder / "reclaim.so")
    assert plugin_installed(libexec, tmp_path)


def test_a_slurm_of_the_sites_own(tmp_path: Path, libexec: Path) -> None:
    plugin = put(tmp_path / "opt/slurm/lib/slurm/reclaim.so")
    assert not plugin_installed(libexec, tmp_path)
    (libexec / "plugin").symlink_to(plugin)
    assert plugin_installed(libexec, tmp_path)
    plugin.unlink()
    assert not plugin_installed(libexec, tmp_path), "the link leads nowhere"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_missing(tmp_path: Path, libexec: Path, name: str) -> None:
    put(tmp_path / "usr/lib64/slurm/reclaim.so")
    (libexec / name).unlink()
    assert not plugin_installed(libexec, tmp_path)
