"""Settings of [notice] that can't work together."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parseaddr
from urllib.parse import urlsplit

from slurm_reclaim.config.schema import Notices


def contradictions(settings: Notices) -> Iterator[str]:
    if not settings.enough:
        yield "notice.enough: names no channel, so nothing could ever be hibernated"
    elif not set(settings.enough) & set(settings.channels):
        yield (
            "notice.enough: none of its channels is in notice.channels, so nobody could ever be "
            "warned and nothing hibernated"
        )
    if "mail" in settings.channels:
        yield from _mail(settings)
    if "webhook" in settings.channels:
        yield from _webhook(settings.webhook)


def _mail(settings: Notices) -> Iterator[str]:
    if "@" not in parseaddr(settings.mail_from)[1]:
        yield f"notice.mail_from: {settings.mail_from!r} is no mail address with an @"
    places = [("notice.mail_to", settings.mail_to.replace("{user}", "user"))]
    places += [("notice.admins", admin) for admin in settings.admins]
    for name, address in places:
        # One bare address: a second one would be a recipient nobody meant.
        if not address or parseaddr(address) != ("", address) or set(address) & set(", ;<>{}"):
            yield f"{name}: {address!r} is no single mail address"


def _webhook(url: str) -> Iterator[str]:
    if not url:
        yield "notice.webhook: notice.channels has webhook, so it needs a URL"
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(c.isspace() for c in url):
        yield "notice.webhook: is no http:// or https:// URL"
