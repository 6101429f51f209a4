"""The node's half of hibernate and restore: every step failed and every step killed."""

import pytest

from slurm_reclaim.errors import DumpFailed, OperationFailed, StoreUnavailable
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.order import Living, Outcome
from slurm_reclaim.stages import node_hibernate, node_restore
from tests.parts.store.world import ID, MEMORY, OWNER, Killed, World


def hibernate(world, **changes):
    return node_hibernate.hibernate(
        world.order(**changes),
        world.session,
        world.tree,
        world.link,
        world.store,
        world,
        world.save,
    )


def runs_on(world):
    return (
        world.tree.state == "running"
        and not world.link.held
        and world.session.living is Living.RUNNING
        and world.store.real.committed(ID) == []
    )


def is_saved(world):
    return (
        world.tree.state == "dead"
        and world.link.held
        and world.session.living is Living.COMMITTED
        and world.store.real.committed(ID) == [0]
    )


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
    assert world.steps == ["blockers"]
    assert runs_on(world)


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


def steps_of_the_main_path(tmp_path):
    world = World(tmp_path)
    hibernate(world)
    return world.steps


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


def test_a_full_disk_after_the_commit_changes_nothing(tmp_path):
    (tmp_path / "dry").mkdir()
    last = len(steps_of_the_main_path(tmp_path / "dry")) - 1
    world = World(tmp_path)
    world.fail_at, world.error = last, StoreUnavailable("no space left")
    assert hibernate(world).outcome is Outcome.DONE
    assert world.steps[last] == "save"
    assert is_saved(world)


@pytest.mark.parametrize(
    "error", [OperationFailed("could not be killed: dd (312)"), OSError(22, "Invalid argument")]
)
def test_what_goes_wrong_with_the_kill_does_not_undo_the_commit(tmp_path, error):
    (tmp_path / "dry").mkdir()
    world = World(tmp_path)
    world.fail_at = steps_of_the_main_path(tmp_path / "dry").index("kill")
    world.error = error
    assert hibernate(world).outcome is Outcome.DONE
    assert world.session.living is Living.COMMITTED


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


def hibernated(tmp_path):
    world = World(tmp_path)
    hibernate(world)
    return world


def restore(world):
    return node_restore.restore(
        ID, 0, world.session, world.tree, world.link, world.store, world, world.save
    )


def test_restore_hands_the_root_to_reclaim_init(tmp_path):
    world = hibernated(tmp_path)
    assert restore(world)
    assert world.link.root == 300
    assert world.session.living is Living.RUNNING
    assert world.session.restored
    assert world.tree.memory_back == MEMORY


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


@pytest.mark.parametrize("step", ["coming_back", "fits"])
def test_what_can_not_be_restored_has_its_output_files_put_back(tmp_path, step):
    """Slurm has truncated them, and the restore may be on another node next time."""
    world = hibernated(tmp_path)
    world.steps.clear()
    world.fail_at = ["save", "open", "coming_back", "fits"].index(step)
    world.error = OperationFailed("numpy is another version")
    assert not restore(world)
    assert world.steps[world.fail_at :] == [step, "outputs", "save"]
    assert world.session.reason == "numpy is another version"


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


def restored_in_place(world):
    assert restore(world)
    world.session.living = Living.RUNNING
