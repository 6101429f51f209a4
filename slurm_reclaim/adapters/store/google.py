"""gs:// through gcsfs, made to behave as s3:// through s3fs does: imported where it is configured.

By itself gcsfs tries again what failed, with pauses of up to half a minute, so that whoever asks
hears of silence instead of the reason; a refusal is any OSError, and a bucket that is not there
looks like an object that is not. What is small it sends within a MIME message whose boundary is
always the same: bytes that contain it can't be stored. And it asks by gRPC what kind of bucket it
is, for kinds that are of no use here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
from gcsfs.core import GCSFileSystem, quote

from slurm_reclaim.adapters.store.answers import NO_BUCKET

# In place of gcsfs's own, which has none: an answer that does not begin, or stops.
_SILENCE = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=30)
# One request, without the attempts around it.
_request = getattr(GCSFileSystem._request, "__wrapped__", GCSFileSystem._request)


class Google(GCSFileSystem):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"requests_timeout": _SILENCE, **options})

    async def _request(self, method: str, path: str, *args: Any, **more: Any) -> Any:
        try:
            return await _request(self, method, path, *args, **more)
        except FileNotFoundError as error:
            if "upload_id=" in path:
                raise OSError("the upload was forgotten by the server") from error
            if "/o/" not in path:  # a list, or an upload: neither is about one object
                raise FileNotFoundError(f"{NO_BUCKET}: {error}") from error
            raise
        except OSError as error:
            if str(error).startswith("Forbidden"):
                raise PermissionError(str(error)) from error
            raise

    async def _info(self, path: str, **_: Any) -> Any:
        """Of an object: one question, and no list of what may lie below it."""
        return await self._get_object(self._strip_protocol(path))

    async def _pipe_file(self, path: str, data: bytes, **_: Any) -> None:
        """A request that holds the bytes and nothing else."""
        bucket, key, _generation = self.split_path(path)
        await self._call(
            "POST", f"{self._location}/upload/storage/v1/b/{quote(bucket)}/o",
            uploadType="media", name=key, data=data,
            headers={"Content-Type": "application/octet-stream"},
        )  # fmt: skip

    async def _put_file(self, lpath: str, rpath: str, chunksize: int, **more: Any) -> None:
        """In parts of `chunksize` bytes, a multiple of 256 KiB, where it is larger than one."""
        if Path(lpath).stat().st_size > chunksize:
            await super()._put_file(lpath, rpath, chunksize=chunksize, **more)
        else:
            await self._pipe_file(rpath, Path(lpath).read_bytes())
