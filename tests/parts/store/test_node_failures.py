"""The node's half of hibernate: every step failed and every step killed."""

from contextlib import suppress

import pytest

from slurm_reclaim.errors import AgentUnavailable, DumpFailed, OperationFailed, StoreUnavailable
from slurm_reclaim.model.order import Living, Outcome
from slurm_reclaim.stages import node_hibernate
from tests.parts.store.stages import (
    hibernate,
    hibernated,
    is_saved,
    restore,
    restored_in_place,
    runs_on,
    steps_of_the_main_path,
)
from tests.parts.store.world import ID, Killed, World


@pytest.mark.parametrize("error", [DumpFailed("x"), StoreUnavailable("no space left")])
def test_a_failure_at_any_step_before_the_commit_leaves_the_session_running(tmp_path, error):
    (tmp_path / "dry").mkdir()
    steps = steps_of_the_main_path(tmp_path / "dry")
    for number in range(steps.index("describe") + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        world.fail_at, world.error = number, error
        result = hibernate(world)
        assert result.outcome is Outcome.FAILED, steps[number]
        assert runs_on(world), steps[number]


def test_a_full_disk_after_the_commit_changes_nothing(tmp_path):
    (tmp_path / "dry").mkdir()
    last = len(steps_of_the_main_path(tmp_path / "dry")) - 1
    world = World(tmp_path)
    world.fail_at, world.error = last, StoreUnavailable("no space left")
    assert hibernate(world).outcome is Outcome.DONE
    assert world.steps[last] == "save"
    assert is_saved(world)


def test_a_process_that_will_not_die_at_once_does_not_undo_the_commit(tmp_path):
    (tmp_path / "dry").mkdir()
    world = World(tmp_path)
    world.fail_at = steps_of_the_main_path(tmp_path / "dry").index("kill")
    world.error = OperationFailed("could not be killed: dd (312)")
    assert hibernate(world).outcome is Outcome.DONE
    assert world.session.living is Living.COMMITTED


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), ValueError("x")])
def test_what_nobody_has_thought_of_leaves_no_tree_frozen(tmp_path, error):
    """Neither where it comes before the commit, nor where it comes while all is given back."""
    (tmp_path / "dry").mkdir()
    steps = steps_of_the_main_path(tmp_path / "dry")
    for number in range(steps.index("describe") + 1):
        world = World(tmp_path / str(number))
        world.fail_at, world.error = number, error
        # Where it was the store's it has a name by now.
        with suppress(type(error)):
            assert hibernate(world).outcome is Outcome.FAILED
        assert runs_on(world), steps[number]
    world = World(tmp_path / "back")
    world.tree.arrived = ["a message arrived"]
    world.fail_in = {"resume": error}
    assert hibernate(world, cancel_on_activity=True).outcome is Outcome.CANCELLED
    assert runs_on(world)


@pytest.mark.parametrize("step", ["hold", "unhold"])
def test_a_session_whose_hold_can_not_be_lifted_runs_on(tmp_path, step):
    """Its reclaim-init is not attached for a moment. That it is held is not forgotten: it would
    keep the job when the session has ended."""
    world = World(tmp_path)
    world.tree.arrived = ["a message arrived"]
    away = AgentUnavailable("reclaim-init of the session is not attached")
    world.fail_in = {step: away, "unhold": away}
    result = hibernate(world, cancel_on_activity=True)
    assert result.outcome in (Outcome.CANCELLED, Outcome.FAILED)
    assert (world.tree.state, world.session.living) == ("running", Living.RUNNING)
    assert world.session.held
    assert world.saved[-1] is Living.RUNNING


def test_a_tree_that_can_not_be_looked_at_is_killed_all_the_same(tmp_path):
    world = World(tmp_path)
    (tmp_path / "dry").mkdir()
    world.fail_at = steps_of_the_main_path(tmp_path / "dry").index("kill")
    world.error = OSError(24, "Too many open files")
    assert hibernate(world).outcome is Outcome.DONE
    assert is_saved(world)


def test_an_agent_killed_at_any_step_recovers_to_one_truth(tmp_path):
    (tmp_path / "dry").mkdir()
    steps = steps_of_the_main_path(tmp_path / "dry")
    outcomes = set()
    for number, name in enumerate(steps):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        world.fail_at = number
        with pytest.raises(Killed):
            hibernate(world)
        staged = [str(each) for each in (folder / "store").rglob(".staging-*")]
        assert set(staged) <= {world.recorded}, f"killed at {name}: nobody would ever remove it"
        # what the next agent finds on disk: the last living state that was saved
        world.session.living = world.saved[-1] if world.saved else Living.RUNNING
        world.session.held = world.link.held
        world.session.session = str(ID) if world.saved else ""
        world.dead, world.fail_at = False, -1
        if world.session.living is Living.DUMPING:
            node_hibernate.recover(
                world.session, world.tree, world.link, world.store, world, world.save
            )
        assert runs_on(world) != is_saved(world), f"killed at {name}"
        outcomes.add(is_saved(world))
    assert outcomes == {True, False}


def test_an_agent_killed_after_a_restore_in_place_does_not_take_the_old_image_for_the_new(tmp_path):
    """Both have the same restart count; what was done since the first is in no image."""
    (tmp_path / "dry").mkdir()
    before = steps_of_the_main_path(tmp_path / "dry").index("commit")
    world = hibernated(tmp_path)
    assert restore(world)
    world.steps.clear()
    world.fail_at = before
    with pytest.raises(Killed):
        hibernate(world, id="o2")
    world.dead, world.fail_at = False, -1
    node_hibernate.recover(world.session, world.tree, world.link, world.store, world, world.save)
    assert world.tree.state == "running"
    assert world.session.living is Living.RUNNING
    assert hibernate(world, id="o3").outcome is Outcome.DONE
    assert world.tree.state == "dead"


def test_an_older_checkpoint_of_the_same_number_is_not_taken_for_the_commit(tmp_path):
    """A session that was restored in place is saved again under its number: an agent killed before
    the commit must not take the old one for it and kill the tree (S1)."""
    (tmp_path / "dry").mkdir()
    dry = hibernated(tmp_path / "dry")
    restored_in_place(dry)
    first = len(dry.steps)
    hibernate(dry)
    names = dry.steps[first:]
    for number in range(names.index("describe") + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = hibernated(folder)
        restored_in_place(world)
        world.steps, world.saved, world.fail_at = [], [], number
        world.dead = False
        with pytest.raises(Killed):
            hibernate(world)
        world.dead, world.fail_at = False, -1
        if not world.saved or world.saved[-1] is not Living.DUMPING:
            continue
        world.session.living, world.session.session = Living.DUMPING, str(ID)
        world.session.held = world.link.held
        node_hibernate.recover(
            world.session, world.tree, world.link, world.store, world, world.save
        )
        assert world.tree.state == "running", f"killed at {names[number]}"
