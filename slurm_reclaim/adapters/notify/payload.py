"""A notice as webhooks and hooks get it: JSON, described in docs/notices.md."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from slurm_reclaim.adapters.notify.texts import Text
from slurm_reclaim.model.notice import Notice

VERSION = 1


def payload(notice: Notice, text: Text, now: float) -> bytes:
    """The fields of Notice with the filled text. A name that is no UTF-8 is shown as `\\xff`;
    otherwise values are as they are, control characters too (JSON escapes them)."""
    body: dict[str, Any] = {"version": VERSION, "sent": round(now, 3)}
    for field in fields(notice):
        value = getattr(notice, field.name)
        body[field.name] = _writable(value) if isinstance(value, str) else value
    body["kind"] = notice.kind.value
    body["subject"] = text.subject
    body["text"] = text.body
    return msgspec.json.encode(body)


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
