"""The seal of a manifest: who made it, for which place, and that no byte has changed (S9).

The last line of a sealed file says where it belongs and which key made the code:

    slurm-reclaim-seal 1 hmac-sha256 key=3f9a61c2 store=<id> place=<session id>/<restarts> mac=<hex>

The code is over every byte before ` mac=`. HMAC-SHA256 and not a keyed BLAKE3, with which the parts
are hashed: manifests are small, so that speed is nothing here, and this one is in the standard
library, in use for longest, and allowed where FIPS 140 is. The parts need no code of their own:
their digests stand in the manifest.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.store.files import fsync_directory
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.private import read_private
from slurm_reclaim.errors import SealBroken, StoreUnavailable
from slurm_reclaim.model.storekey import StoreKey, derive

STORE_ID = ".slurm-reclaim-store-id"
_HEAD = b"slurm-reclaim-seal"
_FORM = (b"1", b"hmac-sha256")


def store_id(root: Path) -> str:
    """The store's own random name, given to it by whoever asks first. Raises StoreUnavailable,
    IntegrityError."""
    path = root / STORE_ID
    try:
        with suppress(FileNotFoundError):
            return _read_id(path)
        made = root / f"{STORE_ID}.{secrets.token_hex(8)}"
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_hex(16).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link never takes the place of another node's.
            os.link(made, path)
        except FileExistsError:
            pass
        finally:
            made.unlink()
        # Before anything is sealed for it: by another name, after a power failure, no seal holds.
        fsync_directory(root)
        return _read_id(path)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror or error}") from error


def _read_id(path: Path) -> str:
    # Two names: for a moment its draft is there as well, and for ever where a node died meanwhile.
    text = read_private(path, 100, names=2).decode("ascii", "replace").strip()
    if len(text) != 32 or not all(c in "0123456789abcdef" for c in text):
        raise StoreUnavailable(f"{path} holds no store id")
    return text


class Seal:
    """Made with the keys of this node for one store."""

    def __init__(self, keys: KeyFile, root: Path) -> None:
        self.keys = keys
        self._root = root

    def ready(self) -> None:
        """See that something can be sealed. Raises KeyUnavailable, StoreUnavailable."""
        self.keys.sealing()
        store_id(self._root)

    def seal(self, raw: bytes, place: str) -> bytes:
        """`raw` and its seal; `place` is `<session id>/<restarts>`. Raises KeyUnavailable,
        StoreUnavailable."""
        key = self.keys.sealing()
        words = [_HEAD, *_FORM, f"key={key.id} store={store_id(self._root)} place={place}".encode()]
        body = raw + b"\n" + b" ".join(words)
        return body + b" mac=" + _code(key, body).encode() + b"\n"

    def open(self, sealed: bytes, place: str) -> bytes:
        """What was sealed for this very place. Raises SealBroken with what is wrong,
        KeyUnavailable, StoreUnavailable."""
        body, marked, code = sealed.rpartition(b" mac=")
        raw, _, line = body.rpartition(b"\n")
        words = line.split(b" ")
        if not marked or words[0] != _HEAD or not sealed.endswith(b"\n"):
            raise SealBroken("the manifest is not sealed")
        said = dict(word.partition(b"=")[::2] for word in words[3:])
        if tuple(words[1:3]) != _FORM or not {b"key", b"store", b"place"} <= said.keys():
            raise SealBroken("the manifest's seal is of a kind that this version does not know")
        key = self.keys.find(_shown(said[b"key"]))
        if key is None:
            raise SealBroken(
                f"the manifest was sealed with key {_shown(said[b'key'])}, which this node does "
                f"not have ({self.keys.path})",
                hint="copy the keys of the node that made it; keys stay listed for as long as "
                "checkpoints that they sealed",
            )
        if not hmac.compare_digest(code[:-1], _code(key, body).encode()):
            raise SealBroken("the manifest was changed after it was sealed, or sealed by another")
        if _shown(said[b"place"]) != place:
            raise SealBroken(
                f"the manifest of {_shown(said[b'place'])} was put in the place of {place}"
            )
        if _shown(said[b"store"]) != store_id(self._root):
            raise SealBroken(
                f"the manifest of {place} was made in another store ({_shown(said[b'store'])})",
                hint=f"a store that was copied as a whole brings its {STORE_ID} along",
            )
        return raw


def _code(key: StoreKey, body: bytes) -> str:
    return hmac.new(derive(key.secret, "manifest seal"), body, hashlib.sha256).hexdigest()


def _shown(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")
