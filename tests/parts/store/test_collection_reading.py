"""Checkpoints that are read again, or taken out of the store."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.export import export
from slurm_reclaim.errors import IntegrityError, OperationFailed, ReclaimError
from tests.parts.store.kept import flip, three
from tests.parts.store.stored import ID


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: p.joinpath("2/index").unlink(), "index is missing"),
        (lambda p: p.joinpath("2/index").write_text("index 3"), "index is not what was"),
        (lambda p: p.joinpath("packs/2-1.pack").unlink(), "2-1.pack is missing"),
        (lambda p: p.joinpath("packs/2-1.pack").write_text(""), "2-1.pack has 0 bytes"),
        (lambda p: flip(p / "packs/2-1.pack", 3), "frame 0 of 2-1.pack is not what was"),
        (lambda p: flip(p / "packs/2-1.pack", -40), "the table of 2-1.pack is not what was"),
        (lambda p: p.joinpath("2/stray").write_text(""), "stray is not in the manifest"),
        (lambda p: (p.joinpath("packs/0-1.pack").unlink(),
                    p.joinpath("packs/0-1.pack").symlink_to("0-2.pack")),
         "0-1.pack is a symbolic link"),
    ],
)  # fmt: skip
def test_what_differs_is_named(
    store: DirectoryStore, collection: Collection, tmp_path: Path, spoil: Any, says: str
) -> None:
    three(store)
    spoil(store.session_dir(ID))
    (found,) = collection.verify(ID, 2)
    assert says in found
    with pytest.raises(IntegrityError) if "stray" not in says else _nothing():
        export(Collection(store, "n1"), ID, 2, tmp_path / "a.tar")
    if "stray" not in says:
        assert list(tmp_path.glob("*.tar*")) + list(tmp_path.glob(".*part")) == []


class _nothing:  # reads like pytest.raises
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_an_export_needs_nothing_else(
    store: DirectoryStore, collection: Collection, tmp_path: Path
) -> None:
    three(store)
    target = tmp_path / "out" / "7.tar"
    target.parent.mkdir()
    size = export(Collection(store, "n1"), ID, 1, target)
    assert target.stat().st_size == size
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as tar:
        names = tar.getnames()
        assert names[-1].endswith("/1/manifest.json"), "the commit comes last"
        assert f"{ID.folder}/packs/0-2.pack" not in names
    shutil.rmtree(store.base)
    store.base.mkdir()
    # as docs/commands.md says; Python 3.11.2 of Debian 12 can't extract with a filter
    subprocess.run(["tar", "-x", "-p", "-f", target, "-C", store.base], check=True)
    assert collection.verify(ID, 1) == []
    assert store.committed(ID) == [1]
    with pytest.raises(OperationFailed, match="can't be written"):
        export(Collection(store, "n1"), ID, 1, target)
    assert os.listdir(target.parent) == ["7.tar"], "what is there is never replaced"


@pytest.mark.parametrize("name", ["0", ".expired-0", ".staging-5", "packs", ""])
@pytest.mark.parametrize("ended", [False, True])
def test_nothing_is_deleted_where_a_link_leads(
    store: DirectoryStore, collection: Collection, tmp_path: Path, name: str, ended: bool
) -> None:
    """Of a store that was copied from where users write, say."""
    three(store)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = ["0-1.pack", "0-9.pack", "manifest.json", "precious"]
    for each in names:
        (elsewhere / each).write_text("mine")
    place = store.session_dir(ID) / name
    if place.is_dir():
        place.rename(tmp_path / "moved")
    place.symlink_to(elsewhere)
    with suppress(ReclaimError):
        collection.expire(ID, [0, 1, 2] if ended else [0], ended=ended)
    assert sorted(os.listdir(elsewhere)) == names


@pytest.mark.parametrize("target", ["/", ".", "..", "/nonexistent/file", "/" + "x" * 300])
def test_what_can_not_be_a_file_is_named(
    store: DirectoryStore, collection: Collection, target: str
) -> None:
    three(store)
    with pytest.raises(OperationFailed, match="can't be written"):
        export(collection, ID, 2, Path(target))
