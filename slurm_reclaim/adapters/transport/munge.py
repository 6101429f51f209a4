"""MUNGE credentials through libmunge: who said it, bound to what was said.

Calls block for as long as munged does (libmunge tries for about two seconds when it is down), so
asynchronous callers use a thread.
"""

from __future__ import annotations

import ctypes
import ipaddress
from dataclasses import dataclass

from slurm_reclaim.errors import AuthUnavailable, CredentialRefused

_LIBRARY = "libmunge.so.2"

_SUCCESS, _SOCKET, _TIMEOUT = 0, 6, 7
_EXPIRED, _REWOUND, _REPLAYED, _UNAUTHORIZED = 15, 16, 17, 18
_OPTION_ADDRESS = 5  # MUNGE_OPT_ADDR4

_CLOCKS = "compare the clocks of this machine and the controller's (chronyc tracking)"
_REFUSALS = {
    2: ("is no credential", ""),  # an empty string is a bad argument to libmunge
    8: ("is no credential", ""),
    9: ("is of an unknown version", ""),
    14: ("was made with another key", "all machines of a cluster share one /etc/munge/munge.key"),
    _EXPIRED: ("is expired", _CLOCKS),
    _REWOUND: ("comes from the future", _CLOCKS),
    _REPLAYED: ("was used before", "send the request again; it gets a new credential"),
    _UNAUTHORIZED: ("is not meant for this user", ""),
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a credential says: `uid` and `gid` are those of the process that made it, `host` the
    IPv4 address of the host on which it was made, as munged knew it there."""

    payload: bytes
    uid: int
    gid: int
    host: str = ""


class Munge:
    """munged of this host. The library is loaded at the first use."""

    def __init__(self, library: str = _LIBRARY) -> None:
        self._name = library
        self._library: ctypes.CDLL | None = None

    def encode(self, payload: bytes) -> str:
        """A credential around `payload`. Raises AuthUnavailable."""
        lib = self._load()
        credential = ctypes.c_char_p()
        code = lib.munge_encode(ctypes.byref(credential), None, payload, len(payload))
        try:
            if code != _SUCCESS or credential.value is None:
                raise self._failure(code, "make")
            return credential.value.decode("ascii")
        finally:
            lib.free(credential)

    def decode(self, credential: str) -> Decoded:
        """What is in `credential`. Raises CredentialRefused where munged says it is no good, and
        AuthUnavailable where munged did not say."""
        lib = self._load()
        buffer, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        context = lib.munge_ctx_create()
        if not context:
            raise AuthUnavailable("munged did not read a credential: out of memory")
        code = lib.munge_decode(
            credential.encode("ascii", "replace"),
            context,
            ctypes.byref(buffer),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        try:
            if code != _SUCCESS:
                raise self._failure(code, "read")
            # string_at of a null pointer would crash: an empty payload has no buffer.
            payload = ctypes.string_at(buffer, length.value) if buffer.value else b""
            return Decoded(payload, uid.value, gid.value, _made_on(lib, context))
        finally:
            lib.free(buffer)
            lib.munge_ctx_destroy(context)

    def _failure(self, code: int, verb: str) -> AuthUnavailable:
        if code in _REFUSALS:
            what, hint = _REFUSALS[code]
            return CredentialRefused(f"the MUNGE credential {what}", hint=hint)
        words = self._load().munge_strerror(code).decode("utf-8", "replace")
        hint = "is munged running? (systemctl status munge)" if code in (_SOCKET, _TIMEOUT) else ""
        return AuthUnavailable(f"munged did not {verb} a credential: {words}", hint=hint)

    def _load(self) -> ctypes.CDLL:
        if self._library is not None:
            return self._library
        try:
            lib = ctypes.CDLL(self._name)
        except OSError as error:
            raise AuthUnavailable(
                f"{self._name} can't be loaded: {error}", hint="install MUNGE's library (libmunge)"
            ) from None
        pointer = ctypes.POINTER
        lib.munge_encode.argtypes = [
            pointer(ctypes.c_char_p), ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int,
        ]  # fmt: skip
        lib.munge_decode.argtypes = [
            ctypes.c_char_p, ctypes.c_void_p, pointer(ctypes.c_void_p), pointer(ctypes.c_int),
            pointer(ctypes.c_uint32), pointer(ctypes.c_uint32),
        ]  # fmt: skip
        lib.munge_encode.restype = lib.munge_decode.restype = ctypes.c_int
        lib.munge_ctx_create.argtypes = []
        lib.munge_ctx_create.restype = ctypes.c_void_p
        lib.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
        lib.munge_ctx_destroy.restype = None
        lib.munge_ctx_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        lib.munge_ctx_get.restype = ctypes.c_int
        lib.munge_strerror.argtypes = [ctypes.c_int]
        lib.munge_strerror.restype = ctypes.c_char_p
        # The C library's free, found through libmunge's own link to it.
        lib.free.argtypes = [ctypes.c_void_p]
        lib.free.restype = None
        self._library = lib
        return lib


def _made_on(lib: ctypes.CDLL, context: int) -> str:
    """The address that is in the credential; "" where it is none by which other hosts could know
    that one (a host name that resolves to 127.0.1.1, as Debian's installer writes it)."""
    raw = (ctypes.c_ubyte * 4)()
    if lib.munge_ctx_get(context, _OPTION_ADDRESS, ctypes.byref(raw)) != _SUCCESS:
        return ""
    address = ipaddress.IPv4Address(bytes(raw))
    return "" if address.is_loopback or address.is_unspecified else str(address)
