"""Checkpoints at a remote place: an S3 server that fails in every way a network can."""

import os
import threading
import time

import pytest

from slurm_reclaim.adapters.store import bucket as buckets
from slurm_reclaim.adapters.store import marks
from slurm_reclaim.adapters.store.bucket import Bucket, Denied
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.options import read_options
from slurm_reclaim.adapters.store.probe import look, probe
from slurm_reclaim.adapters.store.remote import RemoteStore
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.errors import IntegrityError, StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER
from slurm_reclaim.model.upload import UploadState
from tests.parts.store.bucket import BUCKET, OPTIONS, Proxy
from tests.parts.store.test_contents import Shop, write_all
from tests.parts.store.world import ID, World

PREFIX = f"lab/{ID.folder}/"


class Node(Shop):
    """One node: its directory, its way to the bucket."""

    def __init__(self, folder, cloud, *, before=True, timeout=30.0, min_free=0):
        folder.mkdir()
        root = folder / "store"
        root.mkdir(mode=0o700)
        (root / STORE_MARKER).touch()
        self.work = folder / "work"
        self.local = DirectoryStore(root, ID.cluster, self.work, Seal(cloud.keys, root))
        self.store = RemoteStore(
            self.local, cloud.bucket(), self.work, before=before, timeout=timeout, min_free=min_free
        )
        (folder / "world").mkdir()
        self.tree = World(folder / "world").tree

    def here(self):
        return sorted(self.local.committed(ID))

    def mark(self, number=0):
        return marks.read(self.local.checkpoint_dir(ID, number))


class Cloud:
    def __init__(self, s3, folder, prefix):
        self.proxy = Proxy(s3)
        self.folder = folder
        self.keys = KeyFile(folder / "store.keys")
        self.keys.add(0)
        self.url = f"s3://{BUCKET}/{prefix}"
        self.direct = Bucket(self.url, self.options(s3))
        self.direct.connect()
        if not self.direct._fs.exists(BUCKET):
            self.direct._fs.mkdir(BUCKET)
        self.direct._fs.pipe_file(f"{BUCKET}/{prefix}/{STORE_MARKER}", b"")

    def options(self, url):
        return OPTIONS | {"client_kwargs": OPTIONS["client_kwargs"] | {"endpoint_url": url}}

    def bucket(self):
        return Bucket(self.url, self.options(self.proxy.url))

    def node(self, name, **more):
        return Node(self.folder / name, self, **more)

    def stored(self):
        return {key.removeprefix(PREFIX) for key in self.direct.list("lab/", 10)}

    def damage(self, key, data):
        self.direct._fs.pipe_file(f"{self.direct._root}/{PREFIX}{key}", data)


def patience(monkeypatch, seconds):
    for question in (Bucket.exists, Bucket.look, Bucket.list, Bucket.read):
        monkeypatch.setattr(question, "__defaults__", (seconds,))


@pytest.fixture
def cloud(s3, tmp_path, request, monkeypatch):
    monkeypatch.setattr(buckets, "_FIRST_PAUSE", 0.01)
    # The machine of the tests is slow; what is not answered at all is set apart where it matters.
    patience(monkeypatch, 10.0)
    one = Cloud(s3, tmp_path, f"p{abs(hash(request.node.name)):x}")
    yield one
    one.proxy.close()


def puts(part):
    return lambda method, path: method in ("PUT", "POST") and part in path


def gets(part):
    return lambda method, path: method == "GET" and part in path


DATA = os.urandom(2 * FRAME) + b"the same " * FRAME


def test_what_one_node_saves_another_restores(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA, "core-1.img": b"core"})
    assert one.store.committed(ID) == two.store.committed(ID) == [0]
    assert two.store.of_job(7, 2001) == [str(ID)]
    assert two.store.of_job(7, 2002) == two.store.of_job(70, 2001) == []
    assert two.store.read(ID, 0) == one.store.read(ID, 0)
    assert two.get(0, "pages-1.img") == DATA
    assert two.mark() is marks.Mark.COPY


def test_the_keys_are_the_paths_of_the_directory(cloud):
    one = cloud.node("n1")
    manifest = one.put(0, {"pages-1.img": DATA})
    (pack,) = manifest.packs
    assert cloud.stored() == {"0/index", "0/manifest.json", f"packs/{pack.path}"}


def test_the_manifest_is_the_last_to_go(cloud):
    cloud.node("n1").put(0, {"pages-1.img": DATA})
    sent = [path for method, path in cloud.proxy.requests if method == "PUT"]
    assert sent[-1].endswith("/0/manifest.json")


def test_a_second_checkpoint_sends_what_is_new(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    first = len(cloud.proxy.requests)
    one.put(1, {"pages-1.img": DATA})
    again = [p for m, p in cloud.proxy.requests[first:] if m == "PUT" and "/packs/0-" in p]
    assert again == []
    assert two.get(1, "pages-1.img") == DATA
    # and one that was restored elsewhere is built upon there
    assert two.put(2, {"pages-1.img": DATA}).contents.stored < FRAME
    assert one.get(2, "pages-1.img") == DATA


def test_large_packs_go_in_parts(cloud, monkeypatch):
    monkeypatch.setattr("slurm_reclaim.adapters.store.checksums.PART", 5 << 20)
    monkeypatch.setattr(buckets, "PART", 5 << 20)
    one, two = cloud.node("n1"), cloud.node("n2")
    data = os.urandom(17 << 20)
    one.put(0, {"pages-1.img": data})
    packs = [h for k, h in cloud.direct.list(PREFIX, 10).items() if "/packs/" in k]
    assert packs[0].checksum.endswith("-4"), packs
    reread = [p for m, p in cloud.proxy.requests if m == "GET" and "/packs/" in p]
    assert reread == [], "the checksum of parts was not understood"
    assert two.get(0, "pages-1.img") == data


ONCE = {
    "refused for a moment": {"status": 503, "code": "SlowDown"},
    "broken for a moment": {"status": 500},
    "answer lost": {"lost": True},
    "half of it arrives": {"short_up": True},
}


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
@pytest.mark.parametrize("kind", ONCE)
def test_a_fault_that_passes_is_overcome(cloud, kind, part):
    one, two = cloud.node("n1"), cloud.node("n2")
    fault = cloud.proxy.fail(on=puts(part), times=1, **ONCE[kind])
    one.put(0, {"pages-1.img": DATA})
    assert fault.seen == 1
    assert two.get(0, "pages-1.img") == DATA
    two.store.verify(ID, 0)


FOR_GOOD = {
    "refused": {"status": 403, "code": "AccessDenied"},
    "broken": {"status": 500},
    "half of it arrives": {"short_up": True},
    "slow": {"wait": 8.0},
}


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
@pytest.mark.parametrize("kind", FOR_GOOD)
def test_a_fault_that_stays_ends_the_commit_and_nothing_counts(cloud, kind, part):
    timeout = 4.0 if kind == "slow" else 30.0
    one, two = cloud.node("n1", timeout=timeout), cloud.node("n2")
    cloud.proxy.fail(on=puts(part), **FOR_GOOD[kind])
    with pytest.raises(StoreUnavailable) as failure:
        one.put(0, {"pages-1.img": DATA})
    if kind == "refused":
        assert "refused (403)" in failure.value.message
    if kind == "slow":
        assert "in time" in failure.value.message or "time allowed" in failure.value.message
    assert not one.store.committed_here(ID, 0)
    assert one.here() == []
    cloud.proxy.faults.clear()
    if kind != "slow":  # which may still arrive, whole
        assert two.store.committed(ID) == [] or part == "/0/manifest.json"
        with pytest.raises(IntegrityError):
            two.get(0, "pages-1.img")
    one.put(0, {"pages-1.img": DATA[::-1]})
    assert two.get(0, "pages-1.img") == DATA[::-1]


def test_a_manifest_whose_answers_are_all_lost_counts_once_it_is_seen_there(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    cloud.proxy.fail(on=puts("/0/manifest.json"), lost=True)
    one.put(0, {"pages-1.img": DATA})
    assert two.get(0, "pages-1.img") == DATA


def test_no_bucket_is_said(cloud):
    cloud.url = "s3://not-there/prefix"
    one = cloud.node("n1")
    for ask in (one.store.check, lambda: one.store.of_job(7, 2001), lambda: one.store.reserve(0)):
        with pytest.raises(StoreUnavailable, match=r"bucket|no checkpoint store"):
            ask()
    with pytest.raises(Denied, match="no such bucket"):
        probe(one.store.bucket)


def test_a_wrong_prefix_is_not_an_empty_store(cloud):
    cloud.url += "-mistyped"
    one = cloud.node("n1")
    with pytest.raises(StoreUnavailable, match=STORE_MARKER):
        one.store.of_job(7, 2001)


def test_clocks_apart_are_named(cloud):
    one = cloud.node("n1")
    cloud.proxy.fail(status=403, code="RequestTimeTooSkewed", on=gets(""))
    cloud.proxy.fail(status=403, code="RequestTimeTooSkewed", on=puts(""))
    with pytest.raises(Denied, match=r"clock|403"):
        one.store.bucket.read("x")
    with pytest.raises(StoreUnavailable, match="clocks differ"):
        one.store.bucket.list("lab/")


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 403}, {"lost": True}, {"wait": 20}])
def test_what_does_not_answer_is_never_none(cloud, fault, monkeypatch):
    one = cloud.node("n1")
    patience(monkeypatch, 1.5)
    one.store.bucket.connect()
    cloud.proxy.fail(**fault)
    for ask in (
        lambda: one.store.of_job(7, 2001),
        lambda: one.store.committed(ID),
        lambda: one.store.read(ID, 0),
        one.store.check,
    ):
        with pytest.raises(StoreUnavailable):
            ask()
    cloud.proxy.faults.clear()
    one.store.bucket._quiet_until = 0.0
    assert one.store.of_job(7, 2001) == []


def test_a_listing_that_fails_after_the_first_answer_is_never_none(cloud):
    one = cloud.node("n1")
    cloud.proxy.fail(on=gets(f"/{BUCKET}"), status=500)
    with pytest.raises(StoreUnavailable):
        one.store.of_job(7, 2001)


def test_silence_is_waited_for_once_and_not_by_every_job(cloud, monkeypatch):
    one = cloud.node("n1")
    patience(monkeypatch, 1.0)
    one.store.bucket.connect()
    cloud.proxy.fail(wait=30.0)
    with pytest.raises(StoreUnavailable):
        one.store.of_job(7, 2001)
    asked = len(cloud.proxy.requests)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        one.store.of_job(8, 2001)
    assert len(cloud.proxy.requests) == asked


def test_a_directory_that_was_a_store_by_itself_is_refused(cloud):
    one = cloud.node("n1")
    one.local.check()  # which names it
    with pytest.raises(StoreUnavailable, match="by itself"):
        one.store.check()


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
def test_half_an_answer_is_fetched_again(cloud, part):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    fault = cloud.proxy.fail(on=gets(part), times=1, short_down=True)
    assert two.get(0, "pages-1.img") == DATA
    assert fault.seen == 1


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
def test_a_fetch_that_fails_leaves_nothing_that_counts(cloud, part):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    cloud.proxy.fail(on=gets(part), status=500)
    with pytest.raises(StoreUnavailable):
        two.get(0, "pages-1.img")
    assert not two.store._whole(two.local.checkpoint_dir(ID, 0))
    cloud.proxy.faults.clear()
    assert two.get(0, "pages-1.img") == DATA


def test_other_bytes_there_are_found_before_they_are_used(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    (pack,) = one.put(0, {"pages-1.img": DATA}).packs
    good = (one.local.session_dir(ID) / "packs" / pack.path).read_bytes()
    bad = bytearray(good)
    bad[FRAME] ^= 1
    cloud.damage(f"packs/{pack.path}", bytes(bad))
    with pytest.raises(IntegrityError, match="not what was written"):
        two.get(0, "pages-1.img")
    with pytest.raises(IntegrityError, match="not what was written"):
        one.store.verify(ID, 0)
    cloud.damage(f"packs/{pack.path}", good)
    assert two.get(0, "pages-1.img") == DATA
    one.store.verify(ID, 0)


def test_a_copy_that_rots_here_is_fetched_again(cloud):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    (one.local.checkpoint_dir(ID, 0) / "index").write_bytes(b"?")
    assert one.get(0, "pages-1.img") == DATA


def test_a_copy_here_is_enough_when_the_remote_place_is_away(cloud):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    cloud.proxy.fail(status=500)
    assert one.get(0, "pages-1.img") == DATA


# -- upload after the commit ------------------------------------------------------------------


def test_after_the_commit_the_node_has_the_only_copy_until_it_is_uploaded(cloud):
    one, two = cloud.node("n1", before=False), cloud.node("n2", before=False)
    cloud.proxy.fail(status=500)
    one.put(0, {"pages-1.img": DATA})
    assert one.store.committed_here(ID, 0)
    assert one.store.committed(ID) == [0]
    assert one.store.of_job(7, 2001) == [str(ID)]
    assert one.get(0, "pages-1.img") == DATA
    assert told(one) == [(0, UploadState.PENDING)]
    with pytest.raises(StoreUnavailable):
        one.store.uploads.finish_all()
    assert told(one) == [(0, UploadState.PENDING)]
    cloud.proxy.faults.clear()
    assert one.store.uploads.finish_all() == 1
    assert told(one) == [(0, UploadState.UPLOADED)]
    assert two.get(0, "pages-1.img") == DATA
    one.store.uploads.acknowledged(one.store.uploads.told())
    assert told(one) == []
    assert one.store.committed(ID) == [0]


def told(node):
    return [(upload.restarts, upload.state) for upload in node.store.uploads.told()]


def test_what_is_pending_is_told_by_the_next_agent_too(cloud):
    one = cloud.node("n1", before=False)
    one.put(0, {"pages-1.img": DATA})
    again = RemoteStore(one.local, cloud.bucket(), one.work, before=False, timeout=30)
    assert [u.state for u in again.uploads.told()] == [UploadState.PENDING]
    assert again.uploads.finish_all() == 1


def test_uploads_are_unknown_where_the_directory_is_not_there(cloud):
    one = cloud.node("n1", before=False)
    one.put(0, {"pages-1.img": DATA})
    (one.local.root / STORE_MARKER).unlink()
    assert one.store.uploads.told() is None


def test_a_session_restored_and_saved_again_under_its_number_is_not_taken_for_uploaded(cloud):
    one, two = cloud.node("n1", before=False), cloud.node("n2", before=False)
    one.put(0, {"pages-1.img": DATA})
    slow = cloud.proxy.fail(on=puts("/0/index"), times=1, wait=3.0)
    upload = threading.Thread(target=one.store.uploads.finish_all)
    upload.start()
    while not slow.seen:
        time.sleep(0.05)
    assert one.get(0, "pages-1.img") == DATA, "an upload must not hold up a restore"
    one.put(0, {"pages-1.img": DATA[::-1]})
    upload.join()
    assert told(one) == [(0, UploadState.PENDING)]
    one.store.uploads.finish_all()
    assert two.get(0, "pages-1.img") == DATA[::-1]


def test_remains_of_a_commit_that_came_to_nothing_go(cloud):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    marks.write(one.local.checkpoint_dir(ID, 0), marks.Mark.SENDING)
    assert not one.store.committed_here(ID, 0)
    one.store.uploads.finish_all()
    assert one.here() == []


def test_a_replaced_checkpoint_stays_whole_until_the_new_one_is(cloud):
    """The index of the old one is not written over before the new manifest is there."""
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    cloud.proxy.fail(on=puts("/0/manifest.json"), status=500)
    with pytest.raises(StoreUnavailable):
        one.put(0, {"pages-1.img": DATA[::-1]})
    assert two.get(0, "pages-1.img") == DATA
    cloud.proxy.faults.clear()
    one.put(0, {"pages-1.img": DATA[::-1]})
    assert cloud.node("n3").get(0, "pages-1.img") == DATA[::-1]


# -- the cache ---------------------------------------------------------------------------------


def test_copies_make_room_the_oldest_first_and_never_one_that_is_not_uploaded(cloud, monkeypatch):
    one = cloud.node("n1")
    for number in (0, 1):
        one.put(number, {"pages-1.img": os.urandom(FRAME)})
        os.utime(one.local.checkpoint_dir(ID, number) / marks.MARK, (number + 1, number + 1))
    one.store._before = False
    one.put(2, {"pages-1.img": os.urandom(FRAME)})
    free = monkeypatch_room(monkeypatch, one, gain=10)
    one.store.reserve(15)
    assert one.here() == [1, 2]
    free["base"] = -100
    with pytest.raises(StoreUnavailable, match="needs up to"):
        one.store.reserve(15)
    assert one.here() == [2]
    assert one.store.committed(ID) == [2]


def monkeypatch_room(monkeypatch, node, gain):
    """A disk that has 10 bytes more for each checkpoint that goes."""
    free, start = {"base": 10}, len(node.here())
    monkeypatch.setattr(
        node.local, "check", lambda: free["base"] + gain * (start - len(node.here()))
    )
    return free


def test_a_copy_that_is_read_does_not_make_room(cloud, monkeypatch):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    monkeypatch_room(monkeypatch, one, gain=10)
    opened = one.store.open(ID, 0)
    with pytest.raises(StoreUnavailable):
        one.store.reserve(15)
    assert one.here() == [0]
    opened.close()
    one.store.reserve(15)
    assert one.here() == []
    assert one.store.committed(ID) == [0]


# -- deletion ----------------------------------------------------------------------------------


def test_a_deleted_checkpoint_is_gone_everywhere_and_shared_packs_stay(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    one.put(1, {"pages-1.img": DATA})
    one.store.delete(ID, 0)
    assert two.store.committed(ID) == one.store.committed(ID) == [1]
    assert two.get(1, "pages-1.img") == DATA
    one.store.delete(ID, 1)
    assert cloud.stored() == set()
    assert one.here() == []


def test_packs_stay_while_a_checkpoint_is_on_its_way(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    cloud.damage(".staging-1", b"")
    two.store.delete(ID, 0)
    assert any(key.startswith("packs/") for key in cloud.stored())


# -- settings and checks -----------------------------------------------------------------------


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


def test_the_probe_writes_compares_and_removes(cloud):
    one = cloud.node("n1")
    seconds, ahead = probe(one.store.bucket)
    assert seconds > 0
    assert abs(ahead) < 60
    assert not [key for key in cloud.direct.list("", 10) if ".check-" in key]
    cloud.proxy.fail(on=puts(".check-"), status=403, code="AccessDenied")
    with pytest.raises(Denied, match="403"):
        probe(one.store.bucket)
    with pytest.raises(ValueError, match="can't be read"):
        look(cloud.url, str(one.work / "nothing"))


def test_data_written_is_what_a_pipe_gave(cloud):
    staged = (one := cloud.node("n1")).begin(0)
    with staged.receive("pages-1.img") as pipe:
        write_all(pipe, DATA)
    one.commit(staged, 0)
    staged.close()
    assert one.get(0, "pages-1.img") == DATA
