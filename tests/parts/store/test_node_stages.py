"""The node's half of hibernate: what stops it before the commit."""

from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.order import Outcome
from tests.parts.store.stages import hibernate, is_saved, runs_on
from tests.parts.store.world import ID, MEMORY, World


def test_the_main_path(tmp_path):
    world = World(tmp_path)
    result = hibernate(world)
    assert result.outcome is Outcome.DONE
    assert is_saved(world)
    assert result.bytes == len(MEMORY) + len(b"core") + len(b"tar")
    names = [s for s in world.steps if s != "save"]
    assert names.index("hold") < names.index("dump") < names.index("commit") < names.index("kill")


def test_blockers_are_named_and_nothing_is_touched(tmp_path):
    world = World(tmp_path)
    world.tree.found = [Blocker("traced", "gdb (301) is traced by 12", "detach")]
    result = hibernate(world)
    assert result.outcome is Outcome.REFUSED
    assert "traced" in result.reason
    assert result.blockers == tuple(world.tree.found)
    assert set(world.steps) == {"reserve", "staging", "stage", "blockers", "save"}
    assert runs_on(world)
    assert not world.store.real.staging(ID, 0).exists()


def test_an_order_for_another_incarnation_is_stale(tmp_path):
    world = World(tmp_path)
    world.session.restarts = 1
    assert hibernate(world).outcome is Outcome.REFUSED
    assert world.steps == []


def test_typing_during_the_freeze_wins(tmp_path):
    world = World(tmp_path)
    world.tree.typed_at = 4001.0
    result = hibernate(world, cancel_on_activity=True, since=4000.0)
    assert result.outcome is Outcome.CANCELLED
    assert runs_on(world)


def test_an_unread_message_wins(tmp_path):
    world = World(tmp_path)
    world.tree.arrived = ["a message arrived on 127.0.0.1 port 8888"]
    assert hibernate(world, cancel_on_activity=True).outcome is Outcome.CANCELLED
    assert runs_on(world)


def test_a_message_that_comes_right_before_the_commit_wins(tmp_path):
    world = World(tmp_path)
    world.tree.late = ["a message arrived on 127.0.0.1 port 8888"]
    result = hibernate(world, cancel_on_activity=True)
    assert result.outcome is Outcome.CANCELLED
    assert runs_on(world)


def test_use_right_before_the_freeze_wins_and_nothing_is_frozen(tmp_path):
    world = World(tmp_path)
    world.tree.used_before = ["kernel 3f2a busy"]
    result = hibernate(world, cancel_on_activity=True)
    assert result.outcome is Outcome.CANCELLED
    assert "kernel 3f2a busy" in result.reason
    assert "dump" not in world.steps
    assert runs_on(world)


def test_a_clock_that_is_put_back_before_the_commit_makes_nobody_idle(tmp_path):
    """What came since bears times from before `since`."""
    world = World(tmp_path / "whole")
    hibernate(world, cancel_on_activity=True, since=4990.0)
    before_the_commit = world.steps.index("commit")
    for number in range(before_the_commit + 1):
        world = World(tmp_path / str(number))
        world.put_back_at = number
        result = hibernate(world, cancel_on_activity=True, since=4990.0)
        assert result.outcome is Outcome.CANCELLED, world.steps
        assert "clock was put back" in result.reason
        assert runs_on(world)


def test_a_keep_that_arrives_before_the_commit_wins(tmp_path):
    """Whoever ordered the hibernation."""
    world = World(tmp_path)
    world.session.cancelled = "kept by alice"
    result = hibernate(world)
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, "kept by alice")
    assert runs_on(world)


def test_the_owners_own_pause_is_not_cancelled_by_old_typing(tmp_path):
    world = World(tmp_path)
    world.tree.typed_at = 4999.0
    assert hibernate(world).outcome is Outcome.DONE
