"""Encryption at rest (`store.encrypt`): AES-256-GCM, one key for each file of a checkpoint.

A checkpoint attempt has a random data key. It stands in the sealed manifest, wrapped (RFC 3394) by
a key derived from the store's sealing key and the session. From the data key and the name of a file
comes that file's own key; its frames are numbered, and the number is the nonce. So a nonce could
repeat under one key only where a file of one attempt is written twice, which `Cipher` refuses.

`cryptography` is imported where it is used: it is 6 MiB of the agent's memory, for nothing where
nothing is encrypted.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator

from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.errors import IntegrityError, ProgrammingError, SealBroken
from slurm_reclaim.model.storekey import SECRET_BYTES, StoreKey, derive

OVERHEAD = 16  # bytes that a frame grows by: its tag
CHUNK = 1 << 20  # of a stream; plain bytes
_LAST = 1 << 95  # set in the number of a stream's last chunk, so that none can be cut off


class DataKey:
    """Of one attempt at a checkpoint: never kept but wrapped."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def new(cls) -> DataKey:
        return cls(secrets.token_bytes(SECRET_BYTES))

    def hex(self) -> str:
        """For a program of ours that works for the agent; goes to no file."""
        return self._secret.hex()

    def cipher(self, name: str) -> Cipher:
        """For the file `name`, which is written once; its path in the manifest, or of its pack."""
        return Cipher(derive(self._secret, f"file {name}"), name)

    def wrap(self, keys: KeyFile, session: str) -> str:
        """As it stands in a manifest: `<key id>:<hex>`. Raises KeyUnavailable."""
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        key = keys.sealing()
        return f"{key.id}:{aes_key_wrap(_wrapping(key, session), self._secret).hex()}"

    @classmethod
    def unwrap(cls, text: str, keys: KeyFile, session: str) -> DataKey:
        """Raises SealBroken, KeyUnavailable."""
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        id, _, wrapped = text.partition(":")
        key = keys.find(id)
        if key is None:
            raise SealBroken(
                f"it was encrypted under key {id}, which this node does not have ({keys.path})"
            )
        try:
            return cls(aes_key_unwrap(_wrapping(key, session), bytes.fromhex(wrapped)))
        except (InvalidUnwrap, ValueError):
            raise SealBroken(f"its data key is not that of {session}") from None


def cipher_of(secret: str, pack: str) -> Cipher | None:
    """From what `DataKey.hex` gave; None for "", a pack that is not encrypted."""
    return DataKey(bytes.fromhex(secret)).cipher(f"packs/{pack}") if secret else None


def _wrapping(key: StoreKey, session: str) -> bytes:
    return derive(key.secret, f"wrap {session}")


class Cipher:
    """Encrypts and decrypts the frames of one file, from any number of threads."""

    def __init__(self, key: bytes, name: str) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead, self._refused = AESGCM(key), InvalidTag
        self._name = name
        self._lock = threading.Lock()
        self._below = 0  # every number below it was used
        self._ahead: set[int] = set()

    def encrypt(self, frame: bytes, number: int) -> bytes:
        """`number`: 0, 1, 2... in the file, in any order, each once. Raises ProgrammingError for
        one that was used before."""
        self._use(number)
        return self._aead.encrypt(number.to_bytes(12, "big"), frame, None)

    def decrypt(self, frame: bytes, number: int) -> bytes:
        """Raises IntegrityError for a frame that is not the one of this file and number."""
        try:
            return self._aead.decrypt(number.to_bytes(12, "big"), frame, None)
        except self._refused:
            shown = number & (_LAST - 1)
            raise IntegrityError(f"{self._name}: frame {shown} is not what was written") from None

    def _use(self, number: int) -> None:
        with self._lock:
            if number < self._below or number in self._ahead:
                raise ProgrammingError(f"{self._name}: frame number {number} is used twice")
            self._ahead.add(number)
            while self._below in self._ahead:
                self._ahead.remove(self._below)
                self._below += 1

    # -- streams --------------------------------------------------------------------------------

    def encrypt_stream(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Of a whole file, in chunks of CHUNK plain bytes; also an empty one has a last chunk."""
        number, held = 0, bytearray()
        for block in blocks:
            held += block
            while len(held) > CHUNK:
                yield self.encrypt(bytes(held[:CHUNK]), number)
                del held[:CHUNK]
                number += 1
        yield self.encrypt(bytes(held), number | _LAST)

    def decrypt_stream(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """What `encrypt_stream` made, cut into blocks anyhow. Raises IntegrityError, also where
        the end is missing; what came before it has been given out by then."""
        number, held = 0, bytearray()
        for block in blocks:
            held += block
            while len(held) > CHUNK + OVERHEAD:
                yield self.decrypt(bytes(held[: CHUNK + OVERHEAD]), number)
                del held[: CHUNK + OVERHEAD]
                number += 1
        yield self.decrypt(bytes(held), number | _LAST)


def encrypted_size(size: int) -> int:
    """Bytes that a stream of `size` plain bytes becomes."""
    return size + OVERHEAD * max(1, -(-size // CHUNK))
