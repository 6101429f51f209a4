"""A manifest is believed where it was sealed, for what it was sealed, as it was sealed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import STORE_ID, Seal, store_id
from slurm_reclaim.errors import IntegrityError, KeyUnavailable, SealBroken, StoreUnavailable

RAW = b'{\n "uid": 2001\n}'
PLACE = "lab/7.2001.1000/0"


def test_what_was_sealed_is_opened(seal: Seal) -> None:
    sealed = seal.seal(RAW, PLACE)
    assert sealed.startswith(RAW + b"\nslurm-reclaim-seal 1 hmac-sha256 key=")
    assert seal.open(sealed, PLACE) == RAW


@given(raw=st.binary(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_come_back(seal: Seal, raw: bytes) -> None:
    assert seal.open(seal.seal(raw, PLACE), PLACE) == raw


def test_not_one_bit_may_change(seal: Seal) -> None:
    sealed = bytearray(seal.seal(RAW, PLACE))
    for at in range(len(sealed)):
        sealed[at] ^= 1
        with pytest.raises(SealBroken):
            seal.open(bytes(sealed), PLACE)
        sealed[at] ^= 1
    seal.open(bytes(sealed), PLACE)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: b"",
        lambda s: RAW,
        lambda s: RAW + b"\n",
        lambda s: s[:-1],
        lambda s: s[: len(s) // 2],
        lambda s: s + b"\n",
        lambda s: b" " + s,
        lambda s: s.replace(b"uid", b"gid"),
        lambda s: s.replace(b" mac=", b" more=1 mac="),
        lambda s: s.replace(b"seal 1", b"seal 2"),
        lambda s: s.replace(b"hmac-sha256", b"none"),
        lambda s: s[: s.rindex(b"mac=") + 4] + b"\n",
        lambda s: s[: s.rindex(b"mac=") + 4] + b"0" * 64 + b"\n",
    ],
)
def test_forgeries(seal: Seal, change) -> None:  # type: ignore[no-untyped-def]
    sealed = seal.seal(RAW, PLACE)
    with pytest.raises(SealBroken):
        seal.open(change(sealed), PLACE)


@pytest.mark.parametrize(
    "other", ["lab/7.2001.1000/1", "lab/7.2001.2000/0", "lab/8.2001.1000/0", "lab2/7.2001.1000/0",
              "lab/7.2002.1000/0"],
)  # fmt: skip
def test_another_ones_manifest_in_this_place(seal: Seal, other: str) -> None:
    with pytest.raises(SealBroken, match="was put in the place of"):
        seal.open(seal.seal(RAW, other), PLACE)


def test_a_manifest_of_another_store(seal: Seal, keys: KeyFile, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(SealBroken, match="another store"):
        seal.open(Seal(keys, other).seal(RAW, PLACE), PLACE)


def test_a_manifest_of_another_key(seal: Seal, root: Path, tmp_path: Path) -> None:
    """Of another cluster that shares the store, or of who has made a key himself."""
    theirs = KeyFile(tmp_path / "their.keys")
    theirs.add(0)
    sealed = Seal(theirs, root).seal(RAW, PLACE)
    with pytest.raises(SealBroken, match=f"key {theirs.sealing().id}, which this node does not"):
        seal.open(sealed, PLACE)
    forged = sealed.replace(theirs.sealing().id.encode(), seal.keys.sealing().id.encode())
    with pytest.raises(SealBroken, match="sealed by another"):
        seal.open(forged, PLACE)


def test_old_keys_open_for_as_long_as_they_are_listed(seal: Seal, keys: KeyFile) -> None:
    old = seal.seal(RAW, PLACE)
    keys.add(0)
    new = seal.seal(RAW, PLACE)
    assert old != new
    assert seal.open(old, PLACE) == seal.open(new, PLACE) == RAW
    kept = keys.path.read_text().splitlines()[-1]
    keys.path.write_text(kept + "\n")
    assert seal.open(new, PLACE) == RAW
    with pytest.raises(SealBroken, match="does not have"):
        seal.open(old, PLACE)


def test_without_a_key_nothing_is_sealed(seal: Seal) -> None:
    seal.ready()
    sealed = seal.seal(RAW, PLACE)
    seal.keys.path.unlink()
    with pytest.raises(KeyUnavailable):
        seal.ready()
    with pytest.raises(KeyUnavailable):
        seal.open(sealed, PLACE)


# -- the store's id -----------------------------------------------------------------------------


def test_a_store_is_named_once(tmp_path: Path) -> None:
    assert store_id(tmp_path) == store_id(tmp_path)
    assert os.listdir(tmp_path) == [STORE_ID], "no drafts are left"
    (tmp_path / "b").mkdir()
    assert store_id(tmp_path / "b") != store_id(tmp_path)


def test_whoever_comes_second_takes_the_first_ones_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def overtaken(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", real)
        store_id(tmp_path)
        real(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    assert store_id(tmp_path) == (tmp_path / STORE_ID).read_text().strip()
    assert os.listdir(tmp_path) == [STORE_ID]


@pytest.mark.parametrize("text", ["", "x", "0" * 31, "G" * 32])
def test_what_is_no_id_is_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / STORE_ID).write_text(text)
    with pytest.raises(StoreUnavailable, match="no store id"):
        store_id(tmp_path)


def test_a_link_is_no_id(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0" * 32)
    (tmp_path / STORE_ID).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="symbolic link"):
        store_id(tmp_path)
