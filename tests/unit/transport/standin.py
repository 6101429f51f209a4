"""A stand-in for munged: credentials that remember who made them, once readable, spoilable."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from slurm_reclaim.adapters.transport.munge import Decoded
from slurm_reclaim.errors import AuthUnavailable, CredentialRefused


@dataclass
class StandInMunged:
    made: dict[str, Decoded] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    down: bool = False


@dataclass
class StandInMunge:
    """`uid` is whom this process runs as, as munged would see it, `host` its host's address."""

    munged: StandInMunged
    uid: int = field(default_factory=os.getuid)
    host: str = ""

    def encode(self, payload: bytes) -> str:
        self._up()
        credential = f"MUNGE:{len(self.munged.made)}:"
        self.munged.made[credential] = Decoded(payload, self.uid, self.uid, self.host)
        return credential

    def decode(self, credential: str) -> Decoded:
        self._up()
        if credential not in self.munged.made:
            raise CredentialRefused("the MUNGE credential was made with another key")
        if credential in self.munged.read:
            raise CredentialRefused("the MUNGE credential was used before")
        self.munged.read.add(credential)
        return self.munged.made[credential]

    def _up(self) -> None:
        if self.munged.down:
            raise AuthUnavailable("munged did not make a credential: Socket communication error")
