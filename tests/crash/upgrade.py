"""Newer code put in the place of what runs, as a package manager does it, and our daemon there
ended and started again: at any call, so that both versions are at work together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.rig import Rig

# Only the version differs. What it proves is the replacing under running programs.
PREPARE = """set -eu
site=$(dirname $(/opt/slurm-reclaim/bin/python3 -I -c \
    'import slurm_reclaim; print(slurm_reclaim.__path__[0])'))
mkdir -p /opt/crash
if [ ! -e /opt/crash/as-installed ]; then
    cp -r $site/slurm_reclaim /opt/crash/as-installed
    cp -r $site/slurm_reclaim /opt/crash/newer
    rm -rf /opt/crash/newer/__pycache__
    echo '__version__ = "999.0"' >>/opt/crash/newer/__init__.py
fi
"""
REPLACE = """set -eu
site=$(dirname $(/opt/slurm-reclaim/bin/python3 -I -c \
    'import slurm_reclaim; print(slurm_reclaim.__path__[0])'))
from=/opt/crash/{wanted}
if [ {wanted} = next ]; then
    from=/opt/crash/newer
    grep -qs 999.0 $site/slurm_reclaim/__init__.py && from=/opt/crash/as-installed
fi
rm -rf $site/.coming $site/.going
cp -r $from $site/.coming
mv $site/slurm_reclaim $site/.going
mv $site/.coming $site/slurm_reclaim
rm -rf $site/.going
for file in /usr/libexec/slurm-reclaim/*; do
    if [ -f $file ]; then cp -p $file $file.coming; mv $file.coming $file; fi
done
"""


def prepare(rig: Rig, host: str) -> None:
    rig.sh(host, PREPARE)


def replace(rig: Rig, host: str) -> None:
    """The other version than there is."""
    rig.sh(host, REPLACE.format(wanted="next"))


def put_back(rig: Rig, host: str) -> None:
    rig.sh(host, REPLACE.format(wanted="as-installed") + "rm -rf /opt/crash/as-installed")
