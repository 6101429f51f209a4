"""The messages of the SPANK plugin and reclaim-init: `key=value` lines ended by an empty line."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_reclaim.errors import BadRequest

MOST_BYTES = 65536


def encode(message: Mapping[str, str]) -> bytes:
    """Bytes below 0x20, 0x7f and `%` in values are written `%XX`."""
    lines = []
    for key, value in message.items():
        raw = value.encode("utf-8", "surrogateescape")
        safe = b"".join(
            b"%%%02X" % byte if byte < 0x20 or byte in (0x7F, 0x25) else bytes([byte])
            for byte in raw
        )
        lines.append(key.encode("ascii") + b"=" + safe + b"\n")
    return b"".join(lines) + b"\n"


def decode(raw: bytes) -> dict[str, str]:
    """Raises BadRequest for anything that is not such a message."""
    message: dict[str, str] = {}
    for line in raw.splitlines():
        if not line:
            continue
        key, equals, value = line.partition(b"=")
        if not equals or not key:
            raise BadRequest(f"{line[:40]!r} is no key=value line")
        message[key.decode("ascii", "replace")] = _unescape(value)
    return message


def _unescape(value: bytes) -> str:
    out, at = bytearray(), 0
    while at < len(value):
        if value[at] == 0x25:
            digits = value[at + 1 : at + 3]
            try:
                if len(digits) != 2:
                    raise ValueError
                out.append(int(digits, 16))
            except ValueError:
                raise BadRequest(f"bad escape in {value[:40]!r}") from None
            at += 3
        else:
            out.append(value[at])
            at += 1
    return out.decode("utf-8", "surrogateescape")


def number(message: Mapping[str, str], key: str, default: int | None = None) -> int:
    """An integer field. Raises BadRequest where it is missing or none."""
    text = message.get(key, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f"{key}={text[:40]!r} is not a number") from None
