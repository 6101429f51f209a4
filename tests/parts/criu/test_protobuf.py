"""Our reader and writer of CRIU's messages against google.protobuf: the same values out of the
same bytes, the same bytes after the same change, and no bytes accepted that it refuses."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_reclaim.adapters.criu import files, images, mending, schema
from slurm_reclaim.errors import DumpFailed, IntegrityError
from tests.unit.agent import by_google

NUMBERS = {"uint32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1), "int32": (-(2**31), 2**31 - 1)}
NAMES = st.sampled_from(sorted(schema.MESSAGES))
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
thorough = settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)


def varint(value: int, more: int = 0) -> bytes:
    """`more`: so many bytes longer than it need be, as no program writes it."""
    out = []
    while True:
        value, low = value >> 7, value & 0x7F
        if not value and not more:
            return bytes([*out, low])
        more -= not value
        out.append(low | 0x80)


@st.composite
def encoded(draw: Any, name: str, depth: int = 2) -> bytes:
    """Fields of the message and others, in any order, several times, also of a wrong kind."""
    declared = list(schema.MESSAGES[name].values())
    raw = b""
    for _ in range(draw(st.integers(0, 8))):
        number, kind, _repeated = draw(
            st.one_of(
                st.sampled_from(declared),
                st.tuples(st.integers(0, 2**29 - 1), st.just("bytes"), st.just(False)),
            )
        )
        how = draw(st.sampled_from([VARINT, BYTES, BYTES, FIXED64, FIXED32, 3, 7]))
        if draw(st.booleans()):
            how = VARINT if kind in NUMBERS else BYTES
        raw += varint(number << 3 | how, draw(st.sampled_from([0, 0, 0, 1, 5])))
        if how == VARINT:
            value = draw(st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)))
            raw += varint(value, draw(st.sampled_from([0, 0, 0, 1, 2, 9])))
        elif how == BYTES:
            if kind in schema.MESSAGES and depth:
                inner = draw(encoded(kind, depth - 1))
            elif kind in NUMBERS:
                inner = b"".join(map(varint, draw(st.lists(st.integers(0, 2**33), max_size=4))))
            else:
                inner = draw(st.binary(max_size=12))
            raw += varint(len(inner) + draw(st.sampled_from([0, 0, 0, 0, 1]))) + inner
        else:
            raw += draw(st.binary(min_size=8, max_size=8))[: 8 if how == FIXED64 else 4]
    return raw


def same(name: str, ours: Any, theirs: Any) -> None:
    for field, (_, kind, repeated) in schema.MESSAGES[name].items():
        here, there = getattr(ours, field), getattr(theirs, field)
        if not repeated:
            assert ours.HasField(field) == theirs.HasField(field), field
            here, there = [here], [there]
        assert len(here) == len(there), field
        for one, other in zip(here, there, strict=True):
            if kind in schema.MESSAGES:
                same(kind, one, other)
            else:
                assert (one, type(one)) == (other, type(other)), field


def agree(name: str, raw: bytes) -> tuple[Any, Any] | None:
    try:
        theirs = by_google.message(name).FromString(raw)
    except DecodeError:
        with pytest.raises(IntegrityError):
            schema.message(name).FromString(raw)
        return None
    try:
        ours = schema.message(name).FromString(raw)
    except IntegrityError as error:
        # Groups: nothing has written any for twenty years, and CRIU can't read them either.
        if "unknown kind" not in error.message:
            raise
        return None
    same(name, ours, theirs)
    assert ours.SerializeToString() == theirs.SerializeToString()
    return ours, theirs


@thorough
@given(st.data(), NAMES)
def test_messages_are_read_and_written_as_google_does(data: Any, name: str) -> None:
    agree(name, data.draw(encoded(name)))


@thorough
@given(NAMES, st.binary(max_size=40))
def test_any_bytes_are_taken_or_refused_as_google_does(name: str, raw: bytes) -> None:
    agree(name, raw)


def holders(name: str, message: Any) -> list[tuple[str, Any]]:
    """The message and those that are set in it, with their names."""
    found = [(name, message)]
    for field, (_, kind, repeated) in schema.MESSAGES[name].items():
        if kind in schema.MESSAGES:
            inner = list(getattr(message, field)) if repeated else [getattr(message, field)]
            if repeated or message.HasField(field):
                found += [each for one in inner for each in holders(kind, one)]
    return found


@thorough
@given(st.data(), NAMES)
def test_the_same_change_makes_the_same_bytes(data: Any, name: str) -> None:
    both = agree(name, data.draw(encoded(name)))
    if both is None:
        return
    pairs = list(zip(holders(name, both[0]), holders(name, both[1]), strict=True))
    for (kind, ours), (_, theirs) in pairs:
        for field, (_, of, repeated) in schema.MESSAGES[kind].items():
            what = data.draw(st.sampled_from(["leave", "leave", "clear", "set"]))
            if what == "clear":
                ours.ClearField(field)
                theirs.ClearField(field)
            elif what == "set" and not repeated and of not in schema.MESSAGES:
                value = data.draw(st.integers(*NUMBERS[of]) if of in NUMBERS else st.binary())
                setattr(ours, field, value)
                setattr(theirs, field, value)
            elif what == "set" and repeated and of in NUMBERS:
                values = data.draw(st.lists(st.integers(*NUMBERS[of]), max_size=3))
                setattr(ours, field, values)
                del getattr(theirs, field)[:]
                getattr(theirs, field).extend(values)
    assert both[0].SerializeToString() == both[1].SerializeToString()


# -- images as CRIU writes them (recorded/record.py) ---------------------------------------------

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.img"))
KINDS = {"core": "Core", "cpuinfo": "CpuInfo", "fdinfo": "FdInfo", "files": "File", "mm": "Memory",
         "pstree": "PsTree", "remap": "RemapFilePath"}  # fmt: skip


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_real_images_are_read_and_written_as_google_does(path: Path) -> None:
    kind = KINDS.get(path.name.partition("-")[0].removesuffix(".img"))
    if kind is not None:
        found = [agree(kind, raw) for raw in images.entries(path)]
        for memory, _ in filter(None, found):
            for vma in memory.vmas if kind == "Memory" else ():
                assert agree("Vma", vma)
    else:
        # what was sent follows an entry, or lies between two
        data = path.read_bytes()
        kind, (size,) = "TcpStream", struct.unpack_from("<I", data, 8)
        found = [agree(kind, data[12 : 12 + size])]
    assert found
    assert None not in found


def edited(folder: Path, patch: pytest.MonkeyPatch, message: Any) -> dict[str, bytes]:
    """All that is ever changed in images, with these classes."""
    patch.setattr(images, "message", message)
    folder.mkdir()
    for path in RECORDED:
        shutil.copyfile(path, folder / path.name)
    assert images.resume_interrupted_calls(folder)
    images.drop_seccomp(folder)
    assert images.take_as_they_are(folder, {b"/usr/bin/python3.13", b"/tmp/no-\xff-utf8"}) == 2
    mending.see_closing(folder)
    mending.see_in_flight(folder)
    assert len(mending.mend(folder, 2001)) == 1
    made: list[object] = [images.highest_pid(folder), images.listening(folder)]
    made += [list(files.named(folder, ())), [images.close_outside_tcp(folder)]]
    return {"": repr(made).encode()} | {p.name: p.read_bytes() for p in folder.iterdir()}


def test_edits_of_real_images_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = edited(tmp_path / "ours", monkeypatch, schema.message)
    theirs = edited(tmp_path / "theirs", monkeypatch, by_google.message)
    assert ours == theirs
    changed = [path.name for path in RECORDED if ours[path.name] != path.read_bytes()]
    assert {name.partition("-")[0] for name in changed} >= {"core", "files.img", "tcp"}


def complaint(look: Any, folder: Path) -> str:
    """Of the image, where it is one; all names where there is none or it is of the session."""
    try:
        look(folder)
    except IntegrityError as error:
        return error.message
    except DumpFailed:
        pass
    return " ".join(path.name for path in RECORDED)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_an_image_that_was_cut_or_changed_has_an_error_of_its_name(
    tmp_path: Path, path: Path
) -> None:
    """Whatever is looked at and edited says of which image it is, and never more than that."""
    for each in RECORDED:
        shutil.copyfile(each, tmp_path / each.name)
    data = path.read_bytes()
    for at in range(8, len(data), max(1, len(data) // 20)):
        for wrong in (data[:at], data[:at] + b"\xff" + data[at + 1 :]):
            (tmp_path / path.name).write_bytes(wrong)
            for look in (images.highest_pid, images.listening, mending.see_closing,
                         mending.see_in_flight, images.resume_interrupted_calls,
                         images.close_outside_tcp, lambda f: mending.mend(f, 2001),
                         lambda f: list(files.named(f, ()))):  # fmt: skip
                said = complaint(look, tmp_path)
                assert path.name in said, f"{at}: {said}"


def test_what_a_field_cannot_hold_is_named() -> None:
    stream = schema.message("TcpStream")(rcv_wnd=2**32 - 1)
    with pytest.raises(IntegrityError, match=r"rcv_wnd.*4294967296"):
        stream.rcv_wnd += 1
    with pytest.raises(IntegrityError, match="groups"):
        schema.message("Creds")(groups=[-1]).SerializeToString()


def test_a_field_that_is_not_declared_can_not_be_set_or_read() -> None:
    file = schema.message("File")()
    with pytest.raises(AttributeError):
        file.rge = 1
    with pytest.raises(AttributeError):
        _ = file.rge


def test_an_empty_part_is_not_the_next_readers() -> None:
    first = schema.message("File")()
    first.reg.id = 7
    assert (first.HasField("reg"), schema.message("File")().reg.id) == (False, 0)
