"""reclaimd's HTTP side: who asks is what MUNGE says, and every answer is signed for its request.

Handlers get a Caller and bytes and give back a model value; errors become JSON in one place.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import pwd
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from slurm_reclaim.adapters.transport.credential import (
    ANSWER_HEADER,
    AnswerClaim,
    Codec,
    RequestClaim,
    check_request,
    digest,
    open_request,
    seal,
)
from slurm_reclaim.adapters.transport.wire import body_of, encode
from slurm_reclaim.errors import (
    AuthUnavailable,
    BadRequest,
    CredentialRefused,
    NotManaged,
    NotPermitted,
    ReclaimError,
    Refused,
    Unavailable,
)
from slurm_reclaim.model.caller import Caller

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 10
MOST_BYTES_OF_AGENTS = 16 << 20  # a report of a node with hundreds of sessions and all its events
NAMES_FOR = 600.0  # seconds an account name is remembered
# Seconds without a request after which a connection is closed, also one that never made any:
# anybody may open them, and each holds a descriptor. Our own are kept for less (http.KEPT_FOR).
IDLE_FOR = 75.0

_STATUS: tuple[tuple[type[ReclaimError], int], ...] = (
    (CredentialRefused, 401),
    (NotPermitted, 403),
    (NotManaged, 404),
    (BadRequest, 400),
    (Refused, 409),
    (Unavailable, 503),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One authenticated request. `match` holds the variable parts of its path."""

    caller: Caller
    body: bytes
    match: dict[str, str]
    query: dict[str, str]


Answering = Callable[[Ask], Awaitable[object]]


def _is_a_request(record: logging.LogRecord) -> bool:
    """What is no HTTP is told to whom it came from. Anybody may send it, as often as they like."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_a_request)


class Server:
    def __init__(self, host: str, munge: Codec) -> None:
        """`host`: the name the callers sign for (controller.host)."""
        self._host = host
        self._munge = munge
        self._names: dict[int, tuple[float, str]] = {}
        self.app = web.Application(client_max_size=MOST_BYTES_OF_AGENTS)

    def route(self, method: str, path: str, answering: Answering, most: int = MOST_BYTES) -> None:
        """`most`: bytes that a body may have."""

        async def handle(request: web.Request) -> web.Response:
            return await self._handle(request, answering, most)

        self.app.router.add_route(method, path, handle)

    def runner(self) -> web.AppRunner:
        return web.AppRunner(
            self.app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_FOR
        )

    def close_routes(self) -> None:
        """What no route takes is answered in the same words as everything else."""
        self.route("*", "/{rest:.*}", _no_such_path)

    async def _handle(self, request: web.Request, answering: Answering, most: int) -> web.Response:
        nonce = ""
        try:
            # Who asks comes first: of whom nobody knows nothing is kept, however much it sends.
            sealed = request.headers.get("Authorization", "")
            claim, made = await asyncio.to_thread(open_request, self._munge, sealed)
            body = await _read(request, most if made.uid == 0 else min(most, MOST_BYTES))
            self._check(request, claim, body)
            nonce = claim.nonce
            caller = Caller(made.uid, await self._name(made.uid), _peer(request), made.host)
            value = await answering(Ask(caller, body, dict(request.match_info), _query(request)))
            status, answer = 200, encode(value)
        except ReclaimError as error:
            status, answer = _status(error), encode(body_of(error))
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s %s", request.method, request.rel_url.path)
            inner = ReclaimError("internal error; reclaimd's log has the details")
            status, answer = 500, encode(body_of(inner))
        return await self._sign(nonce, status, answer)

    def _check(self, request: web.Request, claim: RequestClaim, body: bytes) -> None:
        check_request(
            claim,
            host=self._host,
            method=request.method,
            path=request.raw_path,
            body=body,
            now=time.time(),
        )

    async def _sign(self, nonce: str, status: int, answer: bytes) -> web.Response:
        headers = {}
        if nonce:
            claim = AnswerClaim(nonce, status, digest(answer))
            try:
                headers[ANSWER_HEADER] = await asyncio.to_thread(seal, self._munge, claim)
            except AuthUnavailable as error:
                # Callers take an unsigned answer for "nothing came of it", which may be wrong
                # here, but never for an order or a success.
                status, answer = 503, encode(body_of(error))
        return web.Response(
            status=status, body=answer, headers=headers, content_type="application/json"
        )

    async def _name(self, uid: int) -> str:
        """The account's name, "" where there is none. In a thread: NSS may be slow."""
        at, name = self._names.get(uid, (float("-inf"), ""))
        if time.monotonic() - at > NAMES_FOR:
            name = await asyncio.to_thread(_account, uid)
            self._names[uid] = (time.monotonic(), name)
        return name


async def _read(request: web.Request, most: int) -> bytes:
    """Refused before it is read, where it says its length."""
    try:
        if (request.content_length or 0) <= most and len(body := await request.read()) <= most:
            return body
    except web.HTTPRequestEntityTooLarge:
        pass
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadRequest(f"the request broke off: {error}") from None
    raise BadRequest(f"the request is larger than {most} bytes")


def _peer(request: web.Request) -> str:
    """The address at the other end, as the kernel has it; no header can change it."""
    name = request.transport.get_extra_info("peername") if request.transport else None
    if not isinstance(name, tuple):
        return ""
    address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def _query(request: web.Request) -> dict[str, str]:
    return dict(request.query.items())


def _status(error: ReclaimError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


async def _no_such_path(ask: Ask) -> object:
    raise BadRequest(
        "reclaimd knows no such request",
        hint="do both sides run the same version of slurm-reclaim?",
    )
