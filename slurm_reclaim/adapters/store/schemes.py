"""What is behind s3:// and gs://. The libraries are imported only where a remote place is
configured: they take memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from slurm_reclaim.adapters.store.answers import said
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model import extras

# Nothing is remembered between questions, and nothing shared between stores.
_FRESH = {"skip_instance_cache": True, "use_listings_cache": False}


def open_scheme(url: str, options: dict[str, Any]) -> Any:
    """The file system of fsspec that `url` is in, which makes each request once: attempts are
    counted and bounded by ours alone. Raises StoreUnavailable; no word goes out yet."""
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise StoreUnavailable(f"{url}: only {', '.join(_SCHEMES)} are known")
    one = _SCHEMES[scheme]
    try:
        return one.opened(options)
    except ImportError as error:
        raise StoreUnavailable(
            f"{url} needs {one.library}: {error}", hint=extras.install(one.extra)
        ) from error
    except Exception as error:  # whatever a library thinks of its options
        raise StoreUnavailable(f"{url}: {said(error)}") from error


def _s3(options: dict[str, Any]) -> Any:
    import s3fs

    config = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 0}}
    config |= dict(options.get("config_kwargs", {}))
    fs = s3fs.S3FileSystem(**_FRESH | options | {"config_kwargs": config})
    fs.retries = 1
    return fs


def _gs(options: dict[str, Any]) -> Any:
    from slurm_reclaim.adapters.store.google import Google

    return Google(**_FRESH | options)


class _Scheme(NamedTuple):
    library: str
    extra: str
    """Of ours, that installs it."""
    opened: Callable[[dict[str, Any]], Any]


_SCHEMES = {"s3": _Scheme("s3fs", "s3", _s3), "gs": _Scheme("gcsfs", "gcs", _gs)}
