"""The RPM holds what docs/install.md puts down by hand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
SPEC = (ROOT / "slurm-reclaim.spec").read_text()
PAGE = (ROOT / "docs/install.md").read_text()
NOT_PACKAGED = {"dev", "pyslurm"}
# Where a file goes by hand, and by the package. plugstack.conf is not switched on by the latter.
PLACES = {
    "/usr/lib/sysusers.d": "%{_sysusersdir}",
    "/usr/lib/tmpfiles.d": "%{_tmpfilesdir}",
    "/etc/systemd/system": "%{_unitdir}",
    "/etc/slurm-reclaim": "%{_sysconfdir}/slurm-reclaim",
    "/etc/slurm/plugstack.conf.d": "%{_datadir}/slurm-reclaim",
}


def test_files_put_down_by_hand_are_packaged() -> None:
    named = re.findall(r"install (?:-D )?-m 0644 ((?:etc|systemd)/\S+) (\S+)", PAGE)
    assert len(named) > 5
    installed = SPEC.partition("%install")[2].partition("%files")[0]
    listed = SPEC.partition("%files")[2]
    for source, place in named:
        assert source in installed, source
        folder, _, name = place.rpartition("/")
        name = "plugstack.conf" if "plugstack" in source else name
        assert f"{PLACES[folder]}/{name}\n" in listed, place
    for program in re.findall(r"ln -sf /opt/slurm-reclaim/bin/(\S+) ", PAGE):
        assert f"bindir}}/{program}\n" in listed, program


def test_every_part_that_a_host_may_need_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (asked,) = re.findall(
        r"^%\{buildroot\}.*pip install .*'\.\[([a-z0-9,]+)\]'", SPEC, re.MULTILINE
    )
    assert set(asked.split(",")) == set(project["optional-dependencies"]) - NOT_PACKAGED
    assert f"'.[{asked}]'" in PAGE.partition("## RPM")[2], "the wheels of the second source"


def test_versions_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^Version: +{re.escape(version)}$", SPEC, re.MULTILINE)
    assert set(re.findall(r"slurm-reclaim(?:-wheels)?-(\d[\d.]*)[./]", PAGE)) <= {
        version,
        f"{version}.",
    }


@pytest.mark.parametrize("unit", sorted((ROOT / "systemd").glob("*.service")), ids=lambda u: u.name)
def test_units_name_pages_that_are_packaged(unit: Path) -> None:
    (named,) = re.findall(
        r"^Documentation=file:/usr/share/doc/slurm-reclaim/(\S+)$", unit.read_text(), re.MULTILINE
    )
    assert (ROOT / named).is_file()
    (packaged,) = re.findall(r"^%doc (.*)$", SPEC, re.MULTILINE)
    assert named.split("/")[0] in packaged.split()
