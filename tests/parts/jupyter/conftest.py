from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.jupyter.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    if os.geteuid() != 0:
        pytest.skip("a PID namespace and another user's processes need root")
    # pytest's own tmp_path is closed to other users
    with tempfile.TemporaryDirectory() as folder:
        one = Session(Path(folder))
        yield one
        one.close()
