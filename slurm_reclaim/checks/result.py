"""The outcome of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    OK = "ok"
    WARNING = "warning"  # works, less well or less safely than it could
    FAILED = "failed"
    NOT_CHECKED = "not checked"  # can't be told from here; says nothing

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Check:
    """`name` is stable (programs look for it); `what` was seen; `hint` says what to do about it and
    is empty where the verdict is ok."""

    family: str
    name: str
    verdict: Verdict
    what: str
    hint: str = ""


class Family:
    """Makes the checks of one family."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, name: str, what: str) -> Check:
        return Check(self.name, name, Verdict.OK, what)

    def warning(self, name: str, what: str, hint: str) -> Check:
        return Check(self.name, name, Verdict.WARNING, what, hint)

    def failed(self, name: str, what: str, hint: str) -> Check:
        return Check(self.name, name, Verdict.FAILED, what, hint)

    def unchecked(self, name: str, what: str, hint: str = "") -> Check:
        return Check(self.name, name, Verdict.NOT_CHECKED, what, hint)

    def judge(self, name: str, good: bool, what: str, hint: str) -> Check:
        return self.ok(name, what) if good else self.failed(name, what, hint)
