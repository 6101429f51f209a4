"""Encryption at rest: what comes back, what is refused, and that no nonce repeats under a key."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_reclaim.adapters.store import cipher
from slurm_reclaim.adapters.store.cipher import CHUNK, DataKey, encrypted_size
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.errors import IntegrityError, ProgrammingError, SealBroken

SESSION = "lab/7.2001.1000"


def test_frames_come_back_in_any_order() -> None:
    key = DataKey.new()
    frames = [os.urandom(n) for n in (0, 1, 5000)]
    made = {n: key.cipher("p").encrypt(frames[n], n) for n in (2, 0, 1)}
    assert [key.cipher("p").decrypt(made[n], n) for n in range(3)] == frames
    assert len(made[2]) == 5000 + cipher.OVERHEAD


def test_no_number_is_used_twice() -> None:
    one = DataKey.new().cipher("p")
    for number in (1, 0, 5):
        one.encrypt(b"x", number)
    for number in (0, 1, 5):
        with pytest.raises(ProgrammingError):
            one.encrypt(b"y", number)
    one.encrypt(b"x", 2)
    assert one._ahead == {5}, "what is used up in order takes no memory"


def test_numbers_are_counted_over_all_threads() -> None:
    one, twice = DataKey.new().cipher("p"), []

    def work() -> None:
        for number in range(300):
            try:
                one.encrypt(b"", number)
            except ProgrammingError:
                twice.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(twice) == sorted(list(range(300)) * 3)


def test_every_file_and_every_attempt_has_a_key_of_its_own() -> None:
    key = DataKey.new()
    same = {
        key.cipher("packs/0-1.pack").encrypt(b"page", 0),
        key.cipher("packs/0-2.pack").encrypt(b"page", 0),
        DataKey.new().cipher("packs/0-1.pack").encrypt(b"page", 0),
    }
    assert len(same) == 3


def test_a_frame_is_that_of_its_place() -> None:
    key = DataKey.new()
    one = key.cipher("p")
    frame = one.encrypt(b"page", 0)
    bent = bytes([frame[0] ^ 1]) + frame[1:]
    for wrong, number, name in ((bent, 0, "p"), (frame, 1, "p"), (frame, 0, "q"), (b"", 0, "p"),
                                (frame[:-1], 0, "p")):  # fmt: skip
        with pytest.raises(IntegrityError):
            key.cipher(name).decrypt(wrong, number)


# -- streams


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7])
@pytest.mark.parametrize("block", [CHUNK, 70001, 5 * CHUNK])
def test_streams_come_back(size: int, block: int) -> None:
    key, data = DataKey.new(), os.urandom(size)
    made = b"".join(key.cipher("files.tar").encrypt_stream(cut(data, block)))
    assert len(made) == encrypted_size(size)
    assert b"".join(key.cipher("files.tar").decrypt_stream(cut(made, 99999))) == data


@given(data=st.binary(max_size=3000), block=st.integers(1, 500))
def test_any_bytes_in_any_blocks(data: bytes, block: int) -> None:
    key = DataKey.new()
    made = b"".join(key.cipher("a").encrypt_stream(cut(data, block)))
    assert b"".join(key.cipher("a").decrypt_stream(cut(made, block))) == data


def test_a_stream_can_not_be_cut_or_mixed() -> None:
    key, data = DataKey.new(), os.urandom(3 * CHUNK)
    made = list(key.cipher("a").encrypt_stream([data]))
    for wrong in (made[:-1], made[1:], [made[1], made[0], made[2]], [], [*made, b"x"]):
        with pytest.raises(IntegrityError):
            list(key.cipher("a").decrypt_stream(wrong))


# -- the data key


def test_a_wrapped_key_opens_for_its_session_only(keys: KeyFile) -> None:
    key = DataKey.new()
    text = key.wrap(keys, SESSION)
    assert text.startswith(f"{keys.sealing().id}:")
    frame = key.cipher("p").encrypt(b"page", 0)
    assert DataKey.unwrap(text, keys, SESSION).cipher("p").decrypt(frame, 0) == b"page"
    with pytest.raises(SealBroken, match="not that of"):
        DataKey.unwrap(text, keys, "lab/8.2001.1000")
    for wrong in ("", text[:-2], text[:-1] + ("0" if text[-1] != "0" else "1"), f"{text}zz"):
        with pytest.raises(SealBroken):
            DataKey.unwrap(wrong, keys, SESSION)


def test_a_rotated_key_still_unwraps(keys: KeyFile) -> None:
    text = DataKey.new().wrap(keys, SESSION)
    keys.add(0)
    DataKey.unwrap(text, keys, SESSION)
    keys.path.write_text(keys.path.read_text().splitlines()[-1] + "\n")
    with pytest.raises(SealBroken, match="does not have"):
        DataKey.unwrap(text, keys, SESSION)
