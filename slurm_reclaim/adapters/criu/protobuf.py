"""Messages as protobuf encodes them, as far as CRIU's images need it (proto2, no groups).

protobuf's own package takes 4 MiB of every agent that has ever saved a session. What is here reads
and writes the same bytes, by the same names of methods: tests put one in the place of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from slurm_reclaim.errors import IntegrityError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_HIGHEST_KEY = 2**32 - 1
_LONGEST, _SHORT = 10, 5  # bytes of a number; of a field's key and of a length
_ALL = 2**64 - 1
# Numbers by kind: the lowest and the first that is too high.
_RANGES = {"uint32": (0, 2**32), "uint64": (0, 2**64), "int32": (-(2**31), 2**31)}


class Field(NamedTuple):
    """`kind`: one of _RANGES, `bytes`, or the message's class."""

    name: str
    number: int
    kind: Any
    repeated: bool


class Message:
    """One that holds nothing; `declare` makes the classes of those that do. Each field is an
    attribute: one that is not set reads as 0, b"" or an empty message, which stays its reader's
    own; one that is repeated is a list. Fields that are not declared are kept as they are, and
    written after the others."""

    _fields: ClassVar[Mapping[str, Field]] = {}
    _by_key: ClassVar[Mapping[int, Field]] = {}
    _others = b""

    def __init__(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    @classmethod
    def FromString(cls, raw: bytes) -> Any:
        """Raises IntegrityError."""
        found = cls()
        found._read(raw)
        return found

    def HasField(self, name: str) -> bool:
        return name in self.__dict__

    def ClearField(self, name: str) -> None:
        self.__dict__.pop(name, None)

    def SerializeToString(self) -> bytes:
        written: list[bytes] = []
        for name, field in self._fields.items():
            value = self.__dict__.get(name)
            if value is not None:
                written += (_field(field, each) for each in (value if field.repeated else [value]))
        return b"".join([*written, self._others])

    def __getattr__(self, name: str) -> Any:
        field = self._fields.get(name)
        if field is None:
            raise AttributeError(name)
        if field.repeated:
            return self.__dict__.setdefault(name, [])
        return field.kind()

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises IntegrityError for a number that the field can't hold."""
        field = self._fields.get(name)
        if field is None:
            raise AttributeError(name)
        if field.kind in _RANGES and not field.repeated:
            _within(name, field.kind, value)
        self.__dict__[name] = value

    def _read(self, raw: bytes) -> None:
        """In addition to what there is: so protobuf joins a field that comes twice."""
        at, end, found, by_key = 0, len(raw), self.__dict__, self._by_key
        others: list[bytes] = []
        while at < end:
            began = at
            key = raw[at]
            if key < 0x80:
                at += 1
            else:
                key, at = _number(raw, at, _SHORT)
            field = by_key.get(key)
            if key & 7 == _VARINT:
                value: int = raw[at] if at < end else 0x80
                if value < 0x80:
                    at += 1
                else:
                    value, at = _number(raw, at)
                if field is None:
                    others.append(_undeclared(raw[began:at], key))
                elif field.repeated:
                    found.setdefault(field.name, []).append(_as(field.kind, value))
                else:
                    found[field.name] = value if value < 0x80 else _as(field.kind, value)
                continue
            content, at = _content(raw, at, key & 7)
            if field is None:
                others.append(_undeclared(raw[began:at], key))
            elif field.kind in _RANGES:  # packed
                found.setdefault(field.name, []).extend(_numbers(field.kind, content))
            else:
                self._take(field, content)
        if others:
            found["_others"] = self._others + b"".join(others)

    def _take(self, field: Field, content: bytes) -> None:
        found = self.__dict__
        if field.kind != "bytes" and not field.repeated and field.name in found:
            found[field.name]._read(content)
            return
        value = content if field.kind == "bytes" else field.kind.FromString(content)
        if field.repeated:
            found.setdefault(field.name, []).append(value)
        else:
            found[field.name] = value


def declare(declared: Mapping[str, Mapping[str, tuple[int, str, bool]]]) -> dict[str, Any]:
    """The class of each message: {message: {field: (number, kind, repeated)}}, those that are part
    of others before these."""
    classes: dict[str, Any] = {}
    for name, fields in declared.items():
        entries = [
            Field(each, number, classes[kind] if kind[0].isupper() else kind, repeated)
            for each, (number, kind, repeated) in fields.items()
        ]
        entries.sort(key=lambda field: field.number)
        by_key = {}
        for field in entries:
            number = field.kind in _RANGES
            by_key[field.number << 3 | (_VARINT if number else _BYTES)] = field
            if number and field.repeated:
                by_key[field.number << 3 | _BYTES] = field
        unset = {f.name: _unset(f) for f in entries if not f.repeated and isinstance(f.kind, str)}
        own = {"_fields": {field.name: field for field in entries}, "_by_key": by_key}
        classes[name] = type(name, (Message,), {**unset, **own})
    return classes


def _unset(field: Field) -> object:
    return b"" if field.kind == "bytes" else 0


# -- reading -------------------------------------------------------------------------------------


def _number(raw: bytes, at: int, longest: int = _LONGEST) -> tuple[int, int]:
    """The number that begins at `at`, of so many bytes at most, and where it ends."""
    value = 0
    for place, byte in enumerate(raw[at : at + longest]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & _ALL, at + place + 1
    raise IntegrityError("a message ends inside a number, or has one without end")


def _undeclared(raw: bytes, key: int) -> bytes:
    if not 8 <= key <= _HIGHEST_KEY:
        raise IntegrityError(f"a message has a field of number {key >> 3}")
    return raw


def _numbers(kind: str, raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        value, at = _number(raw, at)
        yield _as(kind, value)


def _as(kind: str, value: int) -> int:
    """What of a number on the wire is the field's: of more than it can hold the lower bits."""
    low, high = _RANGES[kind]
    value &= high - low - 1
    return value if value < high else value - (high - low)


def _content(raw: bytes, at: int, how: int) -> tuple[bytes, int]:
    """What is encoded with its length, or has one by the way it is encoded, and where it ends."""
    if how == _BYTES:
        size, at = _number(raw, at, _SHORT)
    elif how in _SIZES:
        size = _SIZES[how]
    else:
        raise IntegrityError(f"a message has a field of an unknown kind, {how}")
    if size > len(raw) - at:
        raise IntegrityError("a message ends inside a field")
    return raw[at : at + size], at + size


# -- writing -------------------------------------------------------------------------------------


def _field(field: Field, value: Any) -> bytes:
    if field.kind in _RANGES:
        _within(field.name, field.kind, value)
        return _written(field.number << 3 | _VARINT) + _written(value & _ALL)
    raw: bytes = value if field.kind == "bytes" else value.SerializeToString()
    return _written(field.number << 3 | _BYTES) + _written(len(raw)) + raw


def _within(name: str, kind: str, value: int) -> None:
    low, high = _RANGES[kind]
    if not low <= value < high:
        raise IntegrityError(f"{name} of an image would be {value}, which it can't hold")


def _written(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
