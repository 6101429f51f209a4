"""Who asks: the uid that MUNGE vouches for, and where it asks from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """`user` is empty where this host knows no account of that uid. `peer` is the address that the
    connection came from; `signed_on` that of the host whose munged made the credential, "" where it
    says none that other hosts could use."""

    uid: int
    user: str = ""
    peer: str = ""
    signed_on: str = ""

    @property
    def root(self) -> bool:
        return self.uid == 0

    def __str__(self) -> str:
        return self.user or f"uid {self.uid}"
