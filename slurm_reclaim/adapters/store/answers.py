"""What a server of objects says, through fsspec: of an object, and of what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

NO_BUCKET = "The specified bucket does not exist"
_NO_SUCH_BUCKET = ("nosuchbucket", NO_BUCKET.lower(), "bucket not found")


@dataclass(frozen=True, slots=True)
class Held:
    """What the server says of an object: `size` in bytes, `checksum` as the server names it (""
    where it names none), `at` Unix seconds of the last change (0 where it does not say)."""

    size: int
    checksum: str = ""
    at: float = 0.0


def held(info: dict[str, Any]) -> Held:
    checksum = info.get("md5Hash") or str(info.get("ETag", "")).strip('"')
    changed = info.get("LastModified") or info.get("mtime")
    at = changed.timestamp() if isinstance(changed, datetime) else 0.0
    return Held(int(info.get("size") or 0), str(checksum), at)


def said(error: BaseException) -> str:
    """What an error says, with what it was made from where that says more."""
    cause = error.__cause__
    if type(cause).__name__ == "RefreshError":  # of google.auth: why there is no token
        return f"{error}: {cause}"[:500]
    code = getattr(cause, "response", {}).get("Error", {}).get("Code", "") if cause else ""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text} ({code})" if code and code not in text and not code.isdigit() else text[:500]


def no_bucket(error: BaseException) -> bool:
    low = said(error).lower()
    return isinstance(error, FileNotFoundError) and any(word in low for word in _NO_SUCH_BUCKET)
