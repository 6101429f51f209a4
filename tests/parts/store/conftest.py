"""A store in a directory, and the S3 server of tests that want one: started once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store import bucket as buckets
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from tests.parts.store.cloud import Cloud, patience
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


@pytest.fixture
def cloud(
    s3: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    monkeypatch.setattr(buckets, "_FIRST_PAUSE", 0.01)
    # The machine of the tests is slow; what is not answered at all is set apart where it matters.
    patience(monkeypatch, 10.0)
    one = Cloud(s3, tmp_path, f"p{abs(hash(request.node.name)):x}")
    yield one
    one.proxy.close()
