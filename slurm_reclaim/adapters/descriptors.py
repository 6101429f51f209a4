"""How many descriptors this process may have open."""

from __future__ import annotations

import resource


def allow_many() -> None:
    """All that it may allow itself. systemd's own limit of 1024 is made for select(2); a controller
    has two connections from each node, a store program a descriptor for each pack."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
