"""What a broken upload left at a remote place: parts of an object that never became one. They are
in no list of objects and cost as much.

S3 alone keeps them until somebody says otherwise (AbortMultipartUpload in its API reference);
Google's resumable uploads end by themselves after a week.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


def drop(call: Callable[..., Any], place: str, prefix: str) -> int:
    """End every upload in parts to a key of `place` (bucket/root) that begins with `prefix`; how
    many there were. Only where nobody sends there. `call` makes one request of s3fs by its name.
    What is refused or not answered is left for the next time: nothing depends on it."""
    bucket, _, root = place.partition("/")
    where = f"{root}/{prefix}".lstrip("/")
    dropped = 0
    try:
        found = call("call_s3", "list_multipart_uploads", Bucket=bucket, Prefix=where)
        for upload in found.get("Uploads") or ():
            call(
                "call_s3", "abort_multipart_upload",
                Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"],
            )  # fmt: skip
            dropped += 1
    except Exception as error:
        log.info("parts of broken uploads below %s/%s stay: %s", place, prefix, error)
    return dropped
