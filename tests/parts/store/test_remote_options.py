"""The secrets of the remote place."""

import os

import pytest

from slurm_reclaim.adapters.store.options import read_options


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o700])
def test_secrets_that_others_can_read_are_refused(tmp_path, mode):
    path = tmp_path / "remote.json"
    path.write_text('{"secret": "s"}')
    path.chmod(mode)
    with pytest.raises(ValueError, match="0600"):
        read_options(str(path), os.geteuid())
    path.chmod(0o600)
    assert read_options(str(path), os.geteuid()) == {"secret": "s"}
    with pytest.raises(ValueError, match="uid"):
        read_options(str(path), os.geteuid() + 1)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"secret": "hunter2"', "x" * 70_000])
def test_secrets_that_can_not_be_read_are_not_shown(tmp_path, text):
    path = tmp_path / "remote.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="no JSON object") as failure:
        read_options(str(path), os.geteuid())
    assert "hunter2" not in str(failure.value)


def test_a_symlink_in_place_of_the_secrets_is_refused(tmp_path):
    (tmp_path / "real").write_text("{}")
    (tmp_path / "remote.json").symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="can't be read"):
        read_options(str(tmp_path / "remote.json"), os.geteuid())
