"""Who asks: the uid that MUNGE vouches for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """`user` is empty where this host knows no account of that uid."""

    uid: int
    user: str = ""

    @property
    def root(self) -> bool:
        return self.uid == 0

    def __str__(self) -> str:
        return self.user or f"uid {self.uid}"
