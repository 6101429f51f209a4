"""The way to reclaimd, for the agent and the command line: signed requests, verified answers.

An answer is believed only if root or the configured controller account signed it for this very
request, so that nobody else who gets hold of the port can give orders.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import socket
import time
from types import TracebackType
from typing import TypeVar

import h11

from slurm_reclaim.adapters.transport.credential import (
    ANSWER_HEADER,
    SCHEME,
    Codec,
    RequestClaim,
    check_answer,
    digest,
    open_answer,
    seal,
)
from slurm_reclaim.adapters.transport.http import HttpClient
from slurm_reclaim.adapters.transport.wire import ErrorBody, decode, encode, error_of
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import AuthUnavailable, ControllerUnavailable, CredentialRefused

T = TypeVar("T")


class ControllerClient:
    """Use as `async with ControllerClient(config, Munge()) as controller:`, or call close()."""

    def __init__(self, config: Config, munge: Codec, *, timeout: float = 30.0) -> None:
        """`timeout`: seconds one request may take where the call gives no other."""
        self._host = config.controller.host
        self._port = config.controller.port
        self._user = config.controller.user
        self._munge = munge
        self._timeout = timeout
        self._http = HttpClient(self._host, self._port)

    async def __aenter__(self) -> ControllerClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    async def get(self, path: str, kind: type[T], *, timeout: float | None = None) -> T:
        """The answer to GET `path` (with its query), decoded as `kind`. Raises
        ControllerUnavailable, AuthUnavailable, or the error that reclaimd answered."""
        return await self._ask("GET", path, b"", kind, timeout)

    async def post(
        self, path: str, body: object, kind: type[T], *, timeout: float | None = None
    ) -> T:
        """The answer to POST `path` with `body` as JSON, decoded as `kind`. Raises as get."""
        return await self._ask("POST", path, encode(body), kind, timeout)

    async def _ask(
        self, method: str, path: str, body: bytes, kind: type[T], timeout: float | None
    ) -> T:
        claim = RequestClaim(self._host, method, path, digest(body), time.time())
        credential = await asyncio.to_thread(seal, self._munge, claim)
        status, answer, signature = await self._send(
            method, path, body, credential, self._timeout if timeout is None else timeout
        )
        await asyncio.to_thread(self._verify, claim.nonce, status, answer, signature)
        if status >= 400:
            raise error_of(decode(answer, ErrorBody))
        return decode(answer, kind)

    async def _send(
        self, method: str, path: str, body: bytes, credential: str, timeout: float
    ) -> tuple[int, bytes, str]:
        headers = {"Authorization": SCHEME + credential}
        if body:
            headers["Content-Type"] = "application/json"
        try:
            answer = await self._http.ask(method, path, headers, body, timeout)
        except (h11.ProtocolError, asyncio.TimeoutError, OSError) as error:
            reason = _plain(error) or f"no answer within {timeout:g} s"
            raise ControllerUnavailable(
                f"reclaimd on {self._host}:{self._port} can't be reached: {reason}",
                hint="is reclaimd running there, and is controller.host right?",
            ) from error
        return answer.status, answer.body, answer.headers.get(ANSWER_HEADER.lower(), "")

    def _verify(self, nonce: str, status: int, body: bytes, signature: str) -> None:
        where = f"reclaimd on {self._host}:{self._port}"
        if not signature:
            if status >= 400:
                # Where reclaimd could not read who asks, or munged is down there. Believed only
                # as far as that nothing is known to have come of the request.
                said = decode(body, ErrorBody)
                raise AuthUnavailable(f"{where} said: {said.message}", hint=said.hint)
            raise AuthUnavailable(f"the answer of {where} is not signed")
        claim, uid = open_answer(self._munge, signature)
        if uid not in _trusted(self._user):
            raise CredentialRefused(
                f"the answer of {where} was signed by uid {uid}, "
                f"which is neither root nor {self._user}",
                hint="controller.user must be the account reclaimd runs as",
            )
        check_answer(claim, nonce=nonce, status=status, body=body)


def _trusted(user: str) -> set[int]:
    """The uids an answer may come from. An account unknown here trusts nobody but root."""
    try:
        return {0, pwd.getpwnam(user).pw_uid}
    except KeyError:
        return {0}


def _plain(error: Exception) -> str:
    """Without numbers and addresses: asyncio says "[Errno 111] Connect call failed ('10.0.0.1',
    6828)", or several of these where a name has several addresses."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    numbers = dict.fromkeys(re.findall(r"\[Errno (\d+)\]", str(error)))
    return ", ".join(os.strerror(int(number)) for number in numbers) or str(error)
