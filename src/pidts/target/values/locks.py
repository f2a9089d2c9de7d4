"""Locks of the in-memory target: what is locked is an error at once, like the lock wait timeout of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pidts.model import Transient

Lock = tuple[str | int, ...]


@dataclass(slots=True)
class Locks:
    """Owners are sessions."""

    owned: dict[Lock, object] = field(default_factory=dict)
    """The lock → its owner."""
    shared: dict[Lock, set[object]] = field(default_factory=dict)
    """The lock, which is closed to owners → the sessions that share it."""

    def take(self, what: Lock, owner: object) -> None:
        """Locks something for this owner alone."""
        if self.shared.get(what, set()) - {owner} or self.owned.setdefault(what, owner) is not owner:
            raise _busy(what)

    def share(self, what: Lock, owner: object) -> None:
        """Locks something for this owner and others that share it."""
        if self.owned.get(what, owner) is not owner:
            raise _busy(what)
        self.shared.setdefault(what, set()).add(owner)

    def release(self, owner: object, which: Callable[[Lock], bool]) -> None:
        """Releases some locks of an owner."""
        for what in [what for what, holder in self.owned.items() if holder is owner and which(what)]:
            del self.owned[what]
        for what, holders in self.shared.items():
            if which(what):
                holders.discard(owner)


def _busy(what: Lock) -> Transient:
    return Transient("target-busy", f"{what} is locked by another session")
