"""The service manager: readiness and watchdog (sd_notify(3)), nothing without NOTIFY_SOCKET."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send e.g. READY=1. Never raises: a daemon must not die of its service manager."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError:
        pass


def watchdog_seconds() -> float:
    """How often systemd wants to hear WATCHDOG=1, halved for safety; 0 where it does not."""
    microseconds = os.environ.get("WATCHDOG_USEC", "0")
    return int(microseconds) / 2e6 if microseconds.isdigit() else 0.0
