"""CRIU's version is asked of each binary once, and again of one that was replaced."""

from slurm_reclaim.adapters.criu.description import criu_version


def install(path, version):
    new = path.with_name("new")
    new.write_text(f'#!/bin/sh\necho asked >> {path}.log\necho "Version: {version}"\n')
    new.chmod(0o755)
    new.rename(path)


def test_asked_once_and_again_after_an_upgrade(tmp_path):
    criu = tmp_path / "criu"
    install(criu, "4.2.1")
    assert [criu_version(str(criu)) for _ in range(3)] == ["4.2.1"] * 3
    install(criu, "4.3")
    assert criu_version(str(criu)) == "4.3"
    assert (tmp_path / "criu.log").read_text() == "asked\n" * 2


def test_what_can_not_be_run_is_asked_again(tmp_path):
    criu = tmp_path / "criu"
    assert criu_version(str(criu)) == ""
    criu.write_text("#!/bin/sh\nexit 1\n")
    criu.chmod(0o755)
    assert criu_version(str(criu)) == ""
    criu.write_text("#!/bin/sh\necho Version: 4.2.1\n")
    assert criu_version(str(criu)) == "4.2.1"
