"""Nodes with a server of objects between them that fails in every way a network can."""

import functools
import os

import pytest

from slurm_reclaim.adapters.store import marks
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.remote import RemoteStore
from slurm_reclaim.adapters.store.remote_collection import RemoteCollection
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.model.checkpoint import STORE_MARKER
from tests.parts.store.bucket import BUCKET, OPTIONS, Proxy
from tests.parts.store.google import GoogleProxy
from tests.parts.store.test_contents import Shop
from tests.parts.store.world import ID, World

PREFIX = f"lab/{ID.folder}/"
# Of a test that takes long: on S3 alone, and with RECLAIM_EVERY_SERVER=1 on the others, too.
SERVERS = ["s3", "gs"] if os.environ.get("RECLAIM_EVERY_SERVER") else ["s3"]
takes_long = pytest.mark.parametrize("cloud", SERVERS, indirect=True)


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

    def collection(self):
        return RemoteCollection(self.store, "test")

    def here(self):
        return sorted(self.local.committed(ID))

    def mark(self, number=0):
        return marks.read(self.local.checkpoint_dir(ID, number))


class Cloud:
    """S3."""

    scheme = "s3"
    proxies: type[Proxy] = Proxy

    def __init__(self, server, folder, prefix):
        self.proxy = self.proxies(server)
        self.folder = folder
        self.keys = KeyFile(folder / "store.keys")
        self.keys.add(0)
        self.url = f"{self.scheme}://{BUCKET}/{prefix}"
        self.direct = self._bucket(server)
        self.direct.connect()
        self.make_bucket()
        self.direct._fs.pipe_file(f"{BUCKET}/{prefix}/{STORE_MARKER}", b"")

    def make_bucket(self):
        if not self.direct._fs.exists(BUCKET):
            self.direct._fs.mkdir(BUCKET)

    def options(self, url):
        more = {"endpoint_url": url, "verify": False}  # no certificates to be read: it is http
        return OPTIONS | {"client_kwargs": OPTIONS["client_kwargs"] | more}

    def bucket(self):
        return self._bucket(self.proxy.url)

    def _bucket(self, url):
        return Bucket(self.url, self.options(url) | {"session": descriptions()})

    def node(self, name, **more):
        return Node(self.folder / name, self, **more)

    def stored(self):
        return {key.removeprefix(PREFIX) for key in self.direct.list("lab/", 10)}

    def damage(self, key, data):
        self.direct._fs.pipe_file(f"{self.direct._root}/{PREFIX}{key}", data)


class GoogleCloud(Cloud):
    scheme = "gs"
    proxies = GoogleProxy

    def make_bucket(self):
        """The server was started with it."""

    def options(self, url):
        return {"token": "anon", "endpoint_url": url}

    def _bucket(self, url):
        return Bucket(self.url, self.options(url))


@functools.cache
def descriptions():
    """botocore's session, which keeps what it has read of the service: for each client anew that
    takes longer than a test."""
    from aiobotocore.session import get_session

    return get_session()


def patience(monkeypatch, seconds):
    for question in (Bucket.exists, Bucket.look, Bucket.list, Bucket.read):
        monkeypatch.setattr(question, "__defaults__", (seconds,))


def puts(part):
    return lambda method, path: method in ("PUT", "POST") and part in path


def gets(part):
    return lambda method, path: method == "GET" and part in path


DATA = os.urandom(2 * FRAME) + b"the same " * FRAME
