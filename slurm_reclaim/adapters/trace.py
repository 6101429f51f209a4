"""Traces as files: JSON Lines, plain or compressed with zstd; see docs/trace.md."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal

import msgspec
import zstandard

from slurm_reclaim.errors import TraceError
from slurm_reclaim.model.sample import Reading, Sample, Signal
from slurm_reclaim.model.trace import (
    VERSION,
    Entry,
    Header,
    Label,
    Measured,
    Return,
    Watched,
)

LONGEST_LINE = 1 << 20  # bytes
_SIGNALS = frozenset(signal.value for signal in Signal)
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Line(msgspec.Struct, tag_field="kind", omit_defaults=True, forbid_unknown_fields=True):
    pass


class _Header(_Line, tag="trace"):
    version: int
    cluster: str
    note: str = ""
    by_session: bool = False
    complete: bool = False


class _Watched(_Line, tag="session"):
    session: str
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    tres: str = ""
    node: str = ""
    started: float = 0.0
    blockers: tuple[str, ...] = ()


class _Reading(msgspec.Struct, omit_defaults=True, frozen=True):
    """As the model's, but what is not said is not written."""

    value: float | None
    last: float | msgspec.UnsetType = msgspec.UNSET
    what: str = ""


class _Measured(_Line, tag="sample"):
    session: str
    at: float
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    readings: dict[str, Reading]


class _Written(_Line, tag="sample"):
    session: str
    at: float
    seconds: float
    readings: dict[str, _Reading]


class _Label(_Line, tag="label", rename={"begin": "from", "end": "to"}):
    session: str
    begin: float
    end: float
    behaviour: str
    use: Literal["idle", "active"]


class _Return(_Line, tag="return"):
    session: str
    at: float


_decoder = msgspec.json.Decoder(_Header | _Watched | _Measured | _Label | _Return)


def read(path: str) -> Iterator[Entry]:
    """The entries in their order, "-" is standard input; the file is never whole in memory. Raises
    TraceError with the line and what is wrong with it."""
    try:
        with _opened(path) as file:
            yield from _entries(path, file)
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from error
    except zstandard.ZstdError as error:
        raise TraceError(f"{path}: is no whole zstd file: {error}") from error


def write(path: str, entries: Iterable[Entry], *, level: int = 10) -> None:
    """Compressed where the name ends in .zst. Raises TraceError."""
    with writing(path, level=level) as put:
        for entry in entries:
            put((entry,))


@contextmanager
def writing(path: str, *, level: int = 10) -> Iterator[Callable[[Iterable[Entry]], None]]:
    """A file that grows: what it is called with can be read when the call is over, unless it is
    compressed, where that is so for what was written some time ago. Raises TraceError."""
    try:
        with open(path, "wb") as file:
            packing = zstandard.ZstdCompressor(level=level)
            target = packing.stream_writer(file, closefd=False) if path.endswith(".zst") else file

            def put(entries: Iterable[Entry]) -> None:
                target.write(b"".join(map(line, entries)))
                if target is file:
                    file.flush()

            try:
                yield put
            finally:
                if target is not file:
                    target.close()
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error


def line(entry: Entry) -> bytes:
    """One entry as it stands in the file, with its end of line."""
    return msgspec.json.encode(_plain(entry)) + b"\n"


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        if file.peek(4)[:4] != _ZSTD:
            yield file
            return
        unpacking = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        with unpacking.stream_reader(file, read_across_frames=True) as stream:
            yield io.BufferedReader(stream)


def _entries(path: str, file: IO[bytes]) -> Iterator[Entry]:
    known: dict[str, float] = {}
    number = 0
    while text := file.readline(LONGEST_LINE + 1):
        number += 1
        if not text.strip():
            continue
        try:
            if len(text) > LONGEST_LINE:
                raise ValueError(f"is longer than {LONGEST_LINE} bytes")
            entry = _model(_decoder.decode(text))
            _check(entry, known, first=number == 1)
        except (ValueError, msgspec.MsgspecError) as error:
            raise TraceError(
                f"{path}:{number}: {error}", hint="the format is described in docs/trace.md"
            ) from None
        yield entry
    if not number:
        raise TraceError(f"{path}: is empty; a trace begins with its header")


def _check(entry: Entry, known: dict[str, float], *, first: bool) -> None:
    """`known`: the sessions so far, and the end of each one's last sample. Raises ValueError."""
    if first is not isinstance(entry, Header):
        raise ValueError("the header stands in the first line, and only there")
    if isinstance(entry, Header):
        return
    if isinstance(entry, Watched):
        if entry.session in known:
            raise ValueError(f"session {entry.session!r} was there before")
        known[entry.session] = 0.0
        return
    last = known.get(entry.session)
    if last is None:
        raise ValueError(f"session {entry.session!r} has no entry before this line")
    if isinstance(entry, Measured):
        if entry.sample.at < last:
            raise ValueError(f"a sample of session {entry.session!r} that is older than its last")
        if not entry.sample.readings.keys() <= _SIGNALS:
            raise ValueError(f"unknown signals: {set(entry.sample.readings) - _SIGNALS}")
        known[entry.session] = entry.sample.at
    elif last:
        raise ValueError(f"labels and returns of {entry.session!r} stand before its samples")
    elif isinstance(entry, Label) and not entry.begin < entry.end:
        raise ValueError("a label ends after it begins")


def _model(row: _Header | _Watched | _Measured | _Label | _Return) -> Entry:
    if type(row) is _Measured:
        return Measured(row.session, Sample(row.at, row.seconds, row.readings))
    if type(row) is _Label:
        return Label(row.session, row.begin, row.end, row.behaviour, row.use == "active")
    if type(row) is _Return:
        return Return(row.session, row.at)
    if type(row) is _Watched:
        return Watched(**{name: getattr(row, name) for name in row.__struct_fields__})
    assert type(row) is _Header
    if row.version != VERSION:
        raise ValueError(f"version {row.version} of the format; this program reads {VERSION}")
    return Header(row.cluster, row.note, row.by_session, row.complete)


def _plain(entry: Entry) -> _Line:
    if isinstance(entry, Measured):
        one = entry.sample
        readings = {
            n: _Reading(r.value, r.last or msgspec.UNSET, r.what) for n, r in one.readings.items()
        }
        return _Written(entry.session, _number(one.at), _number(one.seconds), readings)
    if isinstance(entry, Label):
        use: Literal["idle", "active"] = "active" if entry.active else "idle"
        return _Label(entry.session, entry.begin, entry.end, entry.behaviour, use)
    if isinstance(entry, Return):
        return _Return(entry.session, entry.at)
    if isinstance(entry, Header):
        return _Header(VERSION, entry.cluster, entry.note, entry.by_session, entry.complete)
    fields = {name: getattr(entry, name) for name in _Watched.__struct_fields__}
    return _Watched(**fields)


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise TraceError(f"{value} is no time")
    return value
