"""The model classes as JSON, and errors as JSON and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from slurm_reclaim.errors import BadRequest, ConfigError, ControllerUnavailable, ReclaimError

T = TypeVar("T")
_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ErrorBody:
    error: str
    message: str
    hint: str = ""
    exit_code: int = ReclaimError.exit_code


def encode(value: object) -> bytes:
    """Raises BadRequest for what came from a command line in another encoding."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        said = error.object.encode("utf-8", "surrogateescape")[:_LONGEST_SHOWN]
        raise BadRequest(f"{said!r} can't be sent: it is no UTF-8") from None


def decode(body: bytes, kind: type[T]) -> T:
    """An answer as `kind`. Raises ControllerUnavailable: who answers so is not our reclaimd."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ControllerUnavailable(
            f"the answer can't be read: {error}",
            hint="do both sides run the same version of slurm-reclaim?",
        ) from None


def decode_request(body: bytes, kind: type[T]) -> T:
    """A request's body as `kind`. Raises BadRequest."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the request can't be read: {error}") from None


def body_of(error: ReclaimError) -> ErrorBody:
    return ErrorBody(type(error).__name__, error.message, error.hint, error.exit_code)


def error_of(body: ErrorBody) -> ReclaimError:
    """The error that was answered; one this version does not know keeps its exit code."""
    if body.error == ConfigError.__name__:
        return ConfigError(body.message.splitlines(), hint=body.hint)
    for kind in _tree(ReclaimError):
        if kind.__name__ == body.error:
            return kind(body.message, hint=body.hint)
    unknown: Any = ReclaimError(body.message, hint=body.hint)
    unknown.exit_code = body.exit_code
    return unknown  # type: ignore[no-any-return]


def _tree(kind: type[ReclaimError]) -> Iterator[type[ReclaimError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)
