"""What the controller's stages are told by the configuration; durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_reclaim.config.schema import Config


@dataclass(frozen=True, slots=True)
class Settings:
    """`dump_timeout` is the agent's; an order it has not answered by then is given up. `config`:
    the whole of it, which policy reads its terms from."""

    cluster: str
    special_exit: bool = True
    silent_after: float = 60.0
    restore_wait: float = 120.0
    tail: float = 60.0
    dump_timeout: float = 1800.0
    config: Config = field(default_factory=Config)
