"""The webhook: one POST of JSON, signed where the site has a secret for it.

The URL may itself be a secret (chat services put a token into its path), so messages name its host
only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import ssl
import time

import aiohttp
from yarl import URL

from slurm_reclaim.adapters.notify import trust
from slurm_reclaim.adapters.notify.payload import payload
from slurm_reclaim.adapters.notify.texts import Text
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.notice import Channel, Delivery, Notice
from slurm_reclaim.model.printable import line

SIGNATURE = "X-Reclaim-Signature"
MOST_ANSWER = 4096  # bytes of an answer that are looked at


def sign(secret: bytes, body: bytes, at: int) -> str:
    """Value of the header: `t=<Unix seconds>,v1=<hex HMAC-SHA256 of "<t>." and the body>`. The time
    is signed as well, so that a receiver can refuse an old request."""
    mac = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"


async def send(config: Config, notice: Notice, text: Text) -> list[Delivery]:
    settings, now = config.notice, time.time()
    to = shown(settings.webhook)
    try:
        body = payload(notice, text, now)
        error = await _post(config, body, int(now))
    except asyncio.TimeoutError:
        error = f"no answer within {settings.timeout:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        error = _words(problem)
    return [Delivery(Channel.WEBHOOK, not error, to, line(error, 300), time.time())]


def shown(url: str) -> str:
    """Scheme, host and port; "" where it has none."""
    try:
        return str(URL(url).origin())
    except ValueError:
        return ""


async def _post(config: Config, body: bytes, now: int) -> str:
    """What is wrong with the answer, "" where it is 2xx."""
    settings = config.notice
    headers = {"Content-Type": "application/json", "User-Agent": "slurm-reclaim"}
    if settings.webhook_secret:
        user = config.controller.user
        key = await asyncio.to_thread(trust.secret, settings.webhook_secret, user)
        headers[SIGNATURE] = sign(key, body, now)
    timeout = aiohttp.ClientTimeout(total=settings.timeout)
    trusted = ssl.create_default_context() if settings.webhook.startswith("https:") else True
    # No cookies, no proxies from the environment, no answer that unpacks to gigabytes.
    async with (
        aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, timeout=timeout
        ) as http,
        http.post(
            settings.webhook, data=body, headers=headers, allow_redirects=False, ssl=trusted
        ) as answer,
    ):
        if 200 <= answer.status < 300:
            return ""
        said = await answer.content.read(MOST_ANSWER)
        words = f"{answer.status} {answer.reason or ''}".strip()
        if 300 <= answer.status < 400:
            return f"{words}; redirects are not followed"
        first = said.decode("utf-8", "replace").strip().partition("\n")[0]
        return f"{words}: {first}" if first else words


def _words(problem: Exception) -> str:
    """Without the URL, which aiohttp's own messages name."""
    if isinstance(problem, aiohttp.InvalidURL):
        return "notice.webhook is no URL"
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {problem.certificate_error}"
    if isinstance(problem, aiohttp.ClientConnectorError):
        # asyncio puts the address in the place of the system's words.
        number = problem.os_error.errno or 0
        known = number > 0 and not isinstance(problem, aiohttp.ClientConnectorDNSError)
        return os.strerror(number) if known else str(problem.os_error)
    return str(problem) or type(problem).__name__
