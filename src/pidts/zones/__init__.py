"""Decides, without I/O, which task carries the changes of which zone."""

from pidts.zones.topology import Feed, carried, unreached
