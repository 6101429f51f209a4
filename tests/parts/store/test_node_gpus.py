"""The node's half of hibernate where GPU state can't be given back."""

import pytest

from slurm_reclaim.errors import DumpFailed, StoreUnavailable
from slurm_reclaim.model.order import Living, Outcome
from slurm_reclaim.stages import node_hibernate
from tests.parts.store.stages import hibernate, is_saved, runs_on, steps_of_the_main_path
from tests.parts.store.world import ID, MEMORY, OWNER, Killed, World


def test_what_the_gpus_gave_back_is_told(tmp_path):
    world = World(tmp_path)
    world.session.gpu_freed = 5 << 30
    assert hibernate(world).freed_gpu == 5 << 30
    world.session.restarts = 1
    assert hibernate(world).freed_gpu == 0


@pytest.mark.parametrize("when", ["arrived", "late"])
def test_a_gpu_state_that_can_not_be_given_back_is_saved_with_the_rest(tmp_path, when):
    """Its owner came back: but what it had on the GPUs is in the dump alone."""
    world = World(tmp_path)
    setattr(world.tree, when, ["a message arrived on 127.0.0.1 port 8888"])
    world.tree.gpu_lost = True
    result = hibernate(world, cancel_on_activity=True)
    assert result.outcome is Outcome.DONE
    assert is_saved(world)
    assert "a message arrived" in result.reason
    assert "CUDA_ERROR_UNKNOWN" in result.reason
    assert "let_run" not in world.steps
    assert result.bytes == len(MEMORY) + len(b"core") + len(b"tar")


def test_what_was_made_durable_is_told_again(tmp_path):
    """The second commit comes when the program at the store has ended."""
    world = World(tmp_path)
    staged = world.store.real.stage(ID, 0, OWNER, lambda _: None)
    with staged.receive("pages-1.img") as pages:
        pages.write(MEMORY)
    first = staged.finish()
    staged._child.wait()
    assert staged.finish() == first
    staged.close()


def test_a_lost_gpu_state_leaves_the_rest_running(tmp_path):
    (tmp_path / "dry").mkdir()
    steps = steps_of_the_main_path(tmp_path / "dry")
    for number in range(steps.index("dump"), steps.index("describe") + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        world.tree.gpu_lost = True
        world.fail_at, world.error = number, DumpFailed("no space left")
        result = hibernate(world)
        assert runs_on(world) != is_saved(world), steps[number]
        # What fails once may well be done the second time.
        assert is_saved(world) == (number > steps.index("dumped")), steps[number]
        assert "no space left" in result.reason
        assert "CUDA_ERROR_UNKNOWN" in result.reason


def test_a_lost_gpu_state_that_can_not_be_saved_either_is_told(tmp_path):
    world = World(tmp_path)
    world.tree.gpu_lost = True
    world.tree.arrived = ["a message arrived"]

    def full(*_):
        raise StoreUnavailable("no space left")

    world.store.commit = full
    result = hibernate(world, cancel_on_activity=True)
    assert result.outcome is Outcome.FAILED
    assert "a message arrived" in result.reason
    assert "nor could it be saved: no space left" in result.reason
    assert runs_on(world)


def test_an_agent_started_anew_that_can_not_give_back_a_gpu_state_says_so(tmp_path):
    world = World(tmp_path)
    world.fail_at = 7
    with pytest.raises(Killed):
        hibernate(world)
    assert world.saved[-1] is Living.DUMPING
    world.dead, world.fail_at, world.tree.gpu_lost = False, -1, True
    said = node_hibernate.recover(
        world.session, world.tree, world.link, world.store, world, world.save
    )
    assert "CUDA_ERROR_UNKNOWN" in said
    assert "CUDA_ERROR_UNKNOWN" in world.session.reason
    assert runs_on(world)


def test_what_can_not_be_given_back_for_whatever_reason_is_saved(tmp_path):
    """With GPU state taken, nobody knows how much of it is back."""
    world = World(tmp_path)
    world.tree.arrived = ["a message arrived"]
    world.tree.takes_gpus = True
    world.fail_in = {"resume": OSError(24, "Too many open files")}
    assert hibernate(world, cancel_on_activity=True).outcome is Outcome.DONE
    assert is_saved(world)
