"""Where the agent finds the SPANK plugin: without it no session is restored on its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_reclaim.adapters.slurm.plugin_here import PluginHere

PROGRAMS = ("reclaim-init", "reclaim-relay", "reclaim-exec")


@pytest.fixture
def libexec(tmp_path: Path) -> Path:
    place = tmp_path / "usr/libexec/slurm-reclaim"
    place.mkdir(parents=True)
    for name in PROGRAMS:
        (place / name).touch(0o755)
    return place


def problem(libexec: Path, stack: str = "/etc/slurm/plugstack.conf", scontrol: str = "") -> str:
    return PluginHere(stack, scontrol, libexec, libexec.parents[2]).problem()


def put(plugin: Path) -> Path:
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    return plugin


def test_no_plugin(tmp_path: Path, libexec: Path) -> None:
    assert problem(libexec)


@pytest.mark.parametrize("folder", ["usr/lib64/slurm", "usr/lib/x86_64-linux-gnu/slurm-wlm"])
def test_a_copy_in_a_usual_place(tmp_path: Path, libexec: Path, folder: str) -> None:
    put(tmp_path / folder / "reclaim.so")
    assert not problem(libexec)


def test_a_slurm_of_the_sites_own(tmp_path: Path, libexec: Path) -> None:
    plugin = put(tmp_path / "opt/slurm/lib/slurm/reclaim.so")
    assert problem(libexec)
    (libexec / "plugin").symlink_to(plugin)
    assert not problem(libexec)
    plugin.unlink()
    assert problem(libexec), "the link leads nowhere"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_missing(tmp_path: Path, libexec: Path, name: str) -> None:
    put(tmp_path / "usr/lib64/slurm/reclaim.so")
    (libexec / name).unlink()
    assert problem(libexec)


# -- named in plugstack.conf -------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, libexec: Path) -> Path:
    put(tmp_path / "usr/lib64/slurm/reclaim.so")
    return libexec


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_plugin_that_is_not_named_starts_no_job(tmp_path: Path, installed: Path) -> None:
    """Its script would run from the top beside its checkpoint."""
    stack = tmp_path / "etc/slurm/plugstack.conf"
    write(stack, "include plugstack.conf.d/*.conf\n")
    assert "plugstack.conf does not name the plugin" in problem(installed)
    write(tmp_path / "etc/slurm/plugstack.conf.d/us.conf", "optional /opt/x/reclaim.so timeout=5\n")
    assert not problem(installed)
    write(tmp_path / "etc/slurm/plugstack.conf.d/us.conf", "# optional reclaim.so\n")
    assert problem(installed), "it is looked at each time"


def test_where_slurmd_is_configless_its_own_copy_counts(tmp_path: Path, installed: Path) -> None:
    write(tmp_path / "etc/slurm/plugstack.conf", "")
    write(tmp_path / "run/slurm/conf/plugstack.conf", "optional reclaim.so\n")
    assert not problem(installed)
    write(tmp_path / "run/slurm/conf/plugstack.conf", "")
    assert "/run/slurm/conf/plugstack.conf" in problem(installed)


@pytest.mark.parametrize("stack", ["", "(null)", "/etc/slurm/plugstack.conf"])
def test_what_can_not_be_found_out_is_no_problem(installed: Path, stack: str) -> None:
    assert not problem(installed, stack)


# -- built for this Slurm ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built", "here", "wrong"),
    [("24.11.5", "slurm 24.11.7", False), ("24.11.5", "slurm-wlm 25.05.0", True),
     ("22.05.8", "slurm-wlm 22.05.8", False), ("24.11.5", "nonsense", False),
     ("nonsense", "slurm 24.11.7", False), (None, "slurm 25.05.1", False)],
)  # fmt: skip
def test_an_update_of_slurm_needs_another_plugin(
    tmp_path: Path, installed: Path, built: str | None, here: str, wrong: bool
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho {here}\n")
    scontrol.chmod(0o755)
    if built is not None:
        (installed / "slurm-version").write_text(f"{built}\n")
    told = problem(installed, scontrol=str(scontrol))
    assert bool(told) is wrong
    assert not wrong or told == "the plugin is built for Slurm 24.11, and that node has 25.05"
