"""A compute node, as a folder in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.checks.node_folder import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    root = tmp_path / "node"
    root.mkdir()
    return Node(root)
