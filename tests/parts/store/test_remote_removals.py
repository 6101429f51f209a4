"""Deletions at a remote place that are cut off, or fail, or are two at once."""

import threading

import pytest

from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.errors import StoreUnavailable, WrongState
from tests.parts.store.cloud import PREFIX, takes_long
from tests.parts.store.kept_away import next_pass, removals, three, whole
from tests.parts.store.world import ID


class Died(BaseException):
    pass


@takes_long
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_it_may_die_at_every_removal_and_the_next_pass_ends_it(cloud, monkeypatch, ended, after):
    """Whatever counts is whole at every moment, and the policy sees what is left."""
    one, other = three(cloud), cloud.node("n2").collection()
    objects = {k: cloud.direct.read(k, 10) for k in cloud.direct.list(PREFIX, 10)}
    remove, going = Bucket.remove, [0, 1, 2] if ended else [0, 1]
    for number in range(50):
        left = [number]

        def dies(bucket, key, deadline, left=left):
            left[0] -= 1
            if left[0] >= 0 or after:
                remove(bucket, key, deadline)
            if left[0] < 0:
                raise Died

        monkeypatch.setattr(Bucket, "remove", dies)
        try:
            one.collection().expire(ID, going, ended=ended)
            return
        except Died:
            pass
        finally:
            monkeypatch.setattr(Bucket, "remove", remove)
        for session in other.catalogue()[0]:
            numbers = [c.restarts for c in session.checkpoints]
            assert set(going) | set(numbers) == {0, 1, 2}
            assert [other.verify(ID, n) for n in numbers] == [[] for _ in numbers], number
        next_pass(other, ended)
        assert [s.session for s in other.catalogue()[0]] == ([] if ended else [str(ID)])
        if ended:
            assert cloud.stored() == set()
        else:
            whole(cloud, 2)
            assert not [key for key in cloud.stored() if key.startswith(("0/", "1/"))]
        for key, data in objects.items():
            cloud.damage(key.removeprefix(PREFIX), data)
    raise AssertionError("it never came to its end")


def test_what_is_left_without_a_manifest_is_taken_up(cloud):
    one = three(cloud)
    cloud.direct._fs.rm_file(f"{cloud.direct._root}/{PREFIX}1/manifest.json")
    ((mine,), _) = one.collection().catalogue()
    assert mine.leftovers == (".expired-1",)
    assert mine.leftover_bytes > 0
    one.collection().expire(ID, [], ended=False)
    assert not [key for key in cloud.stored() if key.startswith("1/")]
    whole(cloud, 0, 2)


@takes_long
@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 403}, {"lost": True}])
@pytest.mark.parametrize("part", ["/1/manifest.json", "/1/index", "/packs/"])
def test_a_removal_that_fails_is_said_and_done_again(cloud, fault, part):
    one = three(cloud)
    collection = one.collection()
    fault = cloud.proxy.fail(on=removals(part), **fault)
    # A removal whose answer is lost is one all the same; that is known by asking once more.
    with pytest.raises(StoreUnavailable):
        collection.expire(ID, [0, 1, 2], ended=True)
    assert fault.seen
    cloud.proxy.faults.clear()
    for session in collection.catalogue()[0]:
        for each in session.checkpoints:
            assert collection.verify(ID, each.restarts) == []
    collection.expire(ID, [0, 1, 2], ended=True)
    assert cloud.stored() == set()


def test_two_collectors_at_once_do_no_harm(cloud):
    three(cloud)
    nodes = [cloud.node(name) for name in ("c1", "c2", "c3")]
    said = []

    def work(node):
        try:
            node.collection().expire(ID, [0, 1], ended=False)
        except (StoreUnavailable, WrongState) as error:
            said.append(error)

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nodes[0].collection().expire(ID, [0, 1], ended=False)
    whole(cloud, 2)
    assert said == []
