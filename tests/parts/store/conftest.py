"""A store in a directory, and the servers of objects of tests that want one: started once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store import bucket as buckets
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from tests.parts.store.cloud import Cloud, GoogleCloud, patience
from tests.parts.store.google import google_server
from tests.parts.store.stored import new_store


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return new_store(tmp_path)


@pytest.fixture
def collection(store: DirectoryStore) -> Collection:
    return Collection(store, "n1")


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Its URL."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def gs() -> Iterator[str]:
    """Its URL."""
    with google_server() as url:
        yield url


@pytest.fixture(params=["s3", "gs"])
def cloud(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    """S3 and Google's; one of them where a test says so: parametrize("cloud", ["s3"], indirect)."""
    monkeypatch.setattr(buckets, "_FIRST_PAUSE", 0.01)
    # The machine of the tests is slow; what is not answered at all is set apart where it matters.
    patience(monkeypatch, 10.0)
    server = request.getfixturevalue(request.param)
    kind = {"s3": Cloud, "gs": GoogleCloud}[request.param]
    one = kind(server, tmp_path, f"p{abs(hash(request.node.name)):x}")
    yield one
    one.proxy.close()
