"""MUNGE on this host, and reclaimd: reachable, authenticated, itself in touch with Slurm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from slurm_reclaim.checks.result import Check, Family, Verdict
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import AuthUnavailable, ReclaimError
from slurm_reclaim.model.status import Status

_FAMILY = Family("controller")


class Opened(Protocol):
    @property
    def payload(self) -> bytes: ...
    @property
    def uid(self) -> int: ...


class Codec(Protocol):
    def encode(self, payload: bytes) -> str: ...
    def decode(self, credential: str) -> Opened: ...


def judge(
    codec: Codec, ask: Callable[[], Status], uid: int, config: Config, version: str
) -> tuple[list[Check], Status | None]:
    """The checks, and reclaimd's status for those that follow."""
    sealed = munge(codec, uid)
    if sealed.verdict is not Verdict.OK:
        rest = _FAMILY.unchecked("controller reachable", "munge comes first")
        return [sealed, rest], None
    checks, status = controller(ask, config, version)
    return [sealed, *checks], status


def munge(codec: Codec, uid: int) -> Check:
    """One credential there and back."""
    name = "munge"
    try:
        opened = codec.decode(codec.encode(b"slurm-reclaim check"))
    except ReclaimError as error:
        return _FAMILY.failed(name, error.message, error.hint or "systemctl status munge")
    return _FAMILY.judge(
        name,
        opened.payload == b"slurm-reclaim check" and opened.uid == uid,
        f"a credential made here is of uid {opened.uid}",
        f"it should be uid {uid}: is another munged's socket in the way?",
    )


def controller(
    ask: Callable[[], Status], config: Config, version: str
) -> tuple[list[Check], Status | None]:
    """Munge works here, so a missing or wrong signature is the other side's."""
    where = f"reclaimd on {config.controller.host}:{config.controller.port}"
    try:
        status = ask()
    except AuthUnavailable as error:
        return [
            _FAMILY.ok("controller reachable", f"{where} answers"),
            _FAMILY.failed("controller authenticated", error.message, error.hint),
        ], None
    except ReclaimError as error:
        return [
            _FAMILY.failed("controller reachable", error.message, error.hint),
            _FAMILY.unchecked("controller authenticated", "it does not answer"),
        ], None
    return [
        _FAMILY.ok("controller reachable", f"{where}, cluster {status.cluster or 'not known yet'}"),
        _FAMILY.ok("controller authenticated", f"answers as root or {config.controller.user}"),
        _same_version(status, version),
        _slurm_seen(status, config),
        _mode(status),
    ], status


def _same_version(status: Status, version: str) -> Check:
    return _FAMILY.judge(
        "controller version",
        status.version == version,
        f"{status.version} there, {version} here",
        "install the same version on every host",
    )


def _slurm_seen(status: Status, config: Config) -> Check:
    name = "controller sees Slurm"
    hint = "on the controller: journalctl -u reclaimd; scontrol ping"
    if status.slurm_age < 0:
        return _FAMILY.failed(name, status.slurm_problem or "no query was answered yet", hint)
    seen = f"last answer {status.slurm_age:.0f} s ago"
    if status.slurm_problem:
        seen += f"; the newest query failed: {status.slurm_problem}"
    allowed = 3 * config.slurm.interval + config.slurm.timeout
    return _FAMILY.judge(name, status.slurm_age <= allowed and not status.slurm_problem, seen, hint)


def _mode(status: Status) -> Check:
    if status.mode == "off":
        return _FAMILY.warning(
            "mode", "off: nothing is hibernated by itself", 'set mode = "shadow" or "prod"'
        )
    meant = {
        "shadow": "only says what it would do; what owners ask for is done",
        "prod": "warns and hibernates",
    }
    return _FAMILY.ok("mode", f"{status.mode}: {meant.get(status.mode, 'unknown here')}")
