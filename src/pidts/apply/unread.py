"""Tells which keys a copy under way has still to read, and at which keys the target may be ahead of the log."""

from __future__ import annotations

from collections.abc import Callable

from pidts.plan import CopyMode, CopyState
from pidts.plan.copy.state import Phase

Key = tuple[object, ...]
IsUnread = Callable[[Key], bool]
"""Whether the copy reads this key after the batch is on the target."""
IsAhead = Callable[[Key], bool]
"""Whether the target may show this key as it is only behind the batch."""


def unread(copy: CopyState | None, *, same_keys: bool) -> IsUnread | None:
    """Returns a function that tells it, by the state after the batch; None where no copy is under way.

    `same_keys`: the target's keys are the source's. The source compares keys by its collations, while only whole
    numbers are compared here. Any other key counts as unread only where all keys are.
    """
    if copy is None:
        return None
    reads = copy.phase is Phase.ROWS
    if reads and copy.after is None and copy.upto is None:
        return lambda _: True
    if reads and same_keys and copy.after is not None and copy.upto is not None:
        after, upto = copy.after, copy.upto
        return lambda key: _are_numbers(key, after, upto) and after < key <= upto
    return lambda _: False


def ahead(copy: CopyState | None, *, same_keys: bool, all_changes: bool) -> IsAhead | None:
    """Returns what tells whether the target may be ahead of the batch; None where no copy is under way.

    `same_keys` as in `unread`. `all_changes`: the batch holds all that the log says of the table. Where it does not, a
    row may have come to any key unseen.
    """
    if copy is None:
        return None
    if not all_changes or copy.mode in (CopyMode.ADD, CopyMode.OWN):
        return lambda _: True
    if not copy.ahead:
        return lambda _: False
    after = copy.after
    if same_keys and copy.reads > copy.settled and after is not None:
        # What is loaded and not settled lies behind the last key that was settled.
        return lambda key: not (_are_numbers(key, after) and key <= after)
    if copy.reads > copy.settled:
        return lambda _: True
    # The batch settles what was loaded; what it leaves unread nobody has loaded.
    is_unread = unread(copy, same_keys=same_keys)
    return lambda key: is_unread is None or not is_unread(key)


def _are_numbers(*keys: Key) -> bool:
    return len({len(key) for key in keys}) == 1 and all(type(value) is int for key in keys for value in key)
