"""Our own configuration: readable, without mistakes, and such that something is managed."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_reclaim.checks.host import Host, mode, others_may
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.load import Loaded, digest
from slurm_reclaim.errors import ConfigError

_FAMILY = Family("configuration")


def mistakes(error: ConfigError) -> list[Check]:
    return [_FAMILY.failed("configuration", what, error.hint) for what in error.complaints]


def judge(host: Host, loaded: Loaded) -> list[Check]:
    config = loaded.config
    checks = [
        _FAMILY.ok("configuration", f"{', '.join(loaded.files)} ({digest(config)})"),
        _permissions(host, loaded.files),
    ]
    if config.adopt:
        checks.append(_FAMILY.ok("adopt rules", f"{len(config.adopt)}"))
    else:
        checks.append(
            _FAMILY.warning(
                "adopt rules",
                "none: only jobs submitted with --reclaim=on are managed",
                "add [[adopt]] rules (docs/configuration.md)",
            )
        )
    return checks


def _permissions(host: Host, files: Sequence[str]) -> Check:
    """Root follows what these files say (paths of programs, for one)."""
    for path in files:
        status = host.stat(path)
        if status is not None and (others_may(status, 2) or status.st_uid != 0):
            return _FAMILY.failed(
                "configuration owner",
                f"{path} can be changed by others than root ({mode(status)}, uid {status.st_uid})",
                f"chown root:root {path}; chmod 0644 {path}",
            )
    return _FAMILY.ok("configuration owner", "only root can change it")
