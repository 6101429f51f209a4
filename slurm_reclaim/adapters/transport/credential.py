"""What the credentials of a request and of its answer say (docs/protocol.md, Authentication).

A request's credential binds the controller, the method, the path with its query, the body and the
time; munged refuses the same credential twice. An answer's credential binds it to the request.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
from blake3 import blake3

from slurm_reclaim.adapters.transport.munge import Decoded
from slurm_reclaim.errors import CredentialRefused

VERSION = 1
SKEW = 300.0  # seconds; MUNGE's own default lifetime of a credential
ANSWER_HEADER = "X-Reclaim-Credential"
SCHEME = "MUNGE "


class Codec(Protocol):
    """Munge, or a stand-in of the tests."""

    def encode(self, payload: bytes) -> str: ...

    def decode(self, credential: str) -> Decoded: ...


def digest(body: bytes) -> str:
    return blake3(body).hexdigest()


@dataclass(frozen=True, slots=True)
class RequestClaim:
    """`path` is the path with its query as sent; `time` Unix seconds of the caller's clock."""

    host: str
    method: str
    path: str
    body: str
    time: float
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    v: int = VERSION


@dataclass(frozen=True, slots=True)
class AnswerClaim:
    nonce: str
    status: int
    body: str
    v: int = VERSION


_Claim = TypeVar("_Claim", RequestClaim, AnswerClaim)


def seal(codec: Codec, claim: RequestClaim | AnswerClaim) -> str:
    return codec.encode(msgspec.json.encode(claim))


def open_request(codec: Codec, header: str) -> tuple[RequestClaim, Decoded]:
    """The claim in an Authorization header and what MUNGE says of the caller."""
    if not header.startswith(SCHEME):
        raise CredentialRefused(
            "the request carries no MUNGE credential",
            hint="use the reclaim command; it signs its requests",
        )
    decoded = codec.decode(header[len(SCHEME) :].strip())
    return _read(decoded.payload, RequestClaim), decoded


def open_answer(codec: Codec, credential: str) -> tuple[AnswerClaim, int]:
    """The claim in an answer's credential and the uid that made it."""
    decoded = codec.decode(credential.strip())
    return _read(decoded.payload, AnswerClaim), decoded.uid


def check_request(
    claim: RequestClaim, *, host: str, method: str, path: str, body: bytes, now: float
) -> None:
    """Raises CredentialRefused where the credential was made for another request."""
    if claim.host != host:
        raise CredentialRefused(
            f"the request was signed for the controller {claim.host!r}, this is {host!r}",
            hint="controller.host must be the same in every machine's configuration",
        )
    if (claim.method, claim.path, claim.body) != (method, path, digest(body)):
        raise CredentialRefused("the credential was made for another request")
    late = now - claim.time
    if abs(late) > SKEW:
        raise CredentialRefused(
            f"the caller's clock and the controller's differ by {abs(late):.0f} s",
            hint="compare the clocks of both machines (chronyc tracking)",
        )


def check_answer(claim: AnswerClaim, *, nonce: str, status: int, body: bytes) -> None:
    """Raises CredentialRefused where the credential was made for another answer."""
    if (claim.nonce, claim.status, claim.body) != (nonce, status, digest(body)):
        raise CredentialRefused("the answer's credential was made for another answer")


def _read(payload: bytes, kind: type[_Claim]) -> _Claim:
    try:
        claim = msgspec.json.decode(payload, type=kind)
    except msgspec.MsgspecError:
        raise CredentialRefused("the credential does not say what it was made for") from None
    if claim.v != VERSION:
        raise CredentialRefused(
            f"the credential is of version {claim.v}, this program speaks {VERSION}",
            hint="install the same version of slurm-reclaim on all machines",
        )
    return claim
