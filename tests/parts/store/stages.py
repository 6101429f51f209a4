"""The node's half of hibernate and restore, in the world of world.py."""

from slurm_reclaim.model.order import Living
from slurm_reclaim.stages import node_hibernate, node_restore
from tests.parts.store.world import ID, World


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


def steps_of_the_main_path(tmp_path):
    world = World(tmp_path)
    hibernate(world)
    return world.steps


def hibernated(tmp_path):
    world = World(tmp_path)
    hibernate(world)
    return world


def restore(world):
    return node_restore.restore(
        ID, 0, world.session, world.tree, world.link, world.store, world, world.save
    )


def restored_in_place(world):
    assert restore(world)
    world.session.living = Living.RUNNING
