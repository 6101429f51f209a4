"""The node's half of restore: from what is whole, and from what is not."""

from contextlib import suppress

import pytest

from slurm_reclaim.errors import AgentUnavailable, OperationFailed
from slurm_reclaim.model.order import Living
from tests.parts.store.stages import hibernated, restore
from tests.parts.store.world import ID, MEMORY


def test_restore_hands_the_root_to_reclaim_init(tmp_path):
    world = hibernated(tmp_path)
    assert restore(world)
    assert world.link.root == 300
    assert world.session.living is Living.RUNNING
    assert world.session.restored
    assert world.tree.memory_back == MEMORY


def test_memory_that_is_not_what_was_written_ends_the_restore(tmp_path):
    world = hibernated(tmp_path)
    for at in range(0, 300, 7):
        flip(the_pack(world.store.real.checkpoint_dir(ID, 0)), at)
    assert not restore(world)
    assert "is not what was written" in world.session.reason
    assert world.session.living is Living.RESTORE_FAILED


def the_pack(folder):
    (pack,) = (folder.parent / "packs").iterdir()
    return pack


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "index", -1),
        lambda folder: cut(folder / "index"),
        lambda folder: (folder / "index").unlink(),
        lambda folder: the_pack(folder).unlink(),
        lambda folder: cut(the_pack(folder)),
        lambda folder: flip(the_pack(folder), -30),
        lambda folder: flip(the_pack(folder), -1),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
    ],
    ids=[
        "index changed", "index cut", "index missing", "pack missing", "pack cut", "table changed",
        "footer changed", "no manifest", "broken manifest",
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused_before_anything_starts(tmp_path, damage):
    world = hibernated(tmp_path)
    damage(world.store.real.checkpoint_dir(ID, 0))
    world.steps.clear()
    assert not restore(world)
    assert "restore" not in world.steps
    assert world.session.living is Living.RESTORE_FAILED
    assert world.session.reason


def test_a_failed_restore_keeps_the_image(tmp_path):
    world = hibernated(tmp_path)
    world.steps.clear()
    world.fail_at, world.error = 2, OperationFailed("can't bind")
    assert not restore(world)
    assert world.session.reason == "can't bind"
    assert world.store.real.committed(ID) == [0]


@pytest.mark.parametrize("error", [AgentUnavailable("not attached"), OSError(24, "too many")])
def test_a_tree_that_its_reclaim_init_does_not_take_is_gone(tmp_path, error):
    """It would run on until Slurm ends the job that is held again, and all of that would be lost:
    its image is what is restored next (S3)."""
    world = hibernated(tmp_path)
    world.fail_in = {"adopt_root": error}
    with suppress(OSError):
        assert not restore(world)
    assert world.tree.state == "dead"
    assert world.store.real.committed(ID) == [0]


@pytest.mark.parametrize("step", ["coming_back", "fits"])
def test_what_can_not_be_restored_has_its_output_files_put_back(tmp_path, step):
    """Slurm has truncated them, and the restore may be on another node next time."""
    world = hibernated(tmp_path)
    world.steps.clear()
    world.fail_in = {step: OperationFailed("numpy is another version")}
    assert not restore(world)
    assert "outputs" in world.steps
    assert "restore" not in world.steps
    assert world.session.reason == "numpy is another version"


def test_nothing_is_restored_where_the_output_files_can_not_be_put_back(tmp_path):
    """What the session wrote before would be gone for good with the next hibernation."""
    world = hibernated(tmp_path)
    world.steps.clear()
    world.fail_in = {"outputs": OperationFailed("the disk is full")}
    assert not restore(world)
    assert world.session.reason == "the disk is full"
    assert "restore" not in world.steps
    assert world.store.real.committed(ID) == [0]
