"""Finds out whether a host is this machine; for client and server."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
