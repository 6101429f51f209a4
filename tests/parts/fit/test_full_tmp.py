"""Users can fill /tmp, which belongs to all: what the agent finds out does not hang on it."""

import os
import struct
import tempfile

import pytest

from slurm_reclaim.adapters.criu import files, processor, program
from slurm_reclaim.adapters.criu.schema import message
from slurm_reclaim.model.checkpoint import Credentials

OWNER = Credentials(os.geteuid(), os.getegid(), (), 0, False)
# In place of reclaim-exec: it enters nothing.
ENTERS_NOTHING = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'


@pytest.fixture
def full(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_files_are_looked_at_with_a_full_tmp(tmp_path, monkeypatch, full):
    script(tmp_path / "reclaim-exec", ENTERS_NOTHING)
    monkeypatch.setattr(program, "LIBEXEC", tmp_path)
    wanted = [files.Wanted(os.fsencode(tmp_path / "reclaim-exec"), "r")]
    (seen,) = files.seen_by_owner(OWNER, os.getpid(), wanted, 20.0)
    assert seen.size == len(ENTERS_NOTHING)


def test_what_criu_could_not_tell_once_is_asked_again(tmp_path, monkeypatch):
    info = message("CpuInfo")(x86_entry=[message("CpuX86")(xsave_size_max=2696)])
    raw = info.SerializeToString()
    image = tmp_path / "image"
    image.write_bytes(struct.pack("<III", 0x54564319, 0, len(raw)) + raw)
    criu = script(
        tmp_path / "criu",
        f'#!/bin/sh\n[ -e {tmp_path}/well ] && cp {image} "$5/cpuinfo.img"\n',
    )
    assert processor.xsave_size(str(criu)) == 0
    (tmp_path / "well").touch()
    assert processor.xsave_size(str(criu)) == 0, "not at once: every job start asks"
    monkeypatch.setattr(processor, "AGAIN", 0.0)
    assert processor.xsave_size(str(criu)) == 2696
    image.unlink()
    assert processor.xsave_size(str(criu)) == 2696, "and what it told is not asked for again"
