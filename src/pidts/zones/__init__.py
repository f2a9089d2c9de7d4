"""Decides which task carries the changes of which zone; pure."""

from pidts.zones.topology import Feed, Unreached, carried, check_carried, unreached

__all__ = ["Feed", "Unreached", "carried", "check_carried", "unreached"]
