"""Our own configuration: readable, without mistakes, and such that something is managed."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_reclaim.checks.host import Host
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
        culprit = host.tampered(path)
        if culprit:
            return _FAMILY.failed(
                "configuration owner",
                f"{path}: others than root can change {culprit}",
                f"chown root:root {culprit}; chmod go-w {culprit}",
            )
    return _FAMILY.ok("configuration owner", "only root can change it")
