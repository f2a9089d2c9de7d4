"""Predicts how a ddl command about a waiting schema change would affect rows, as far as structures show it.

The prediction checks whether every value of one type can be written to a column of another type. The decision to wait
is stricter: it compares only types of one family (`pidts.shards.structures.fits`). For example, a CHAR and a VARCHAR
make two versions, although the values of the CHAR fit into the VARCHAR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pidts.model import Arrival, ColumnType, CommandKind, Kind, Member
from pidts.model.types import INTEGER_BITS, LOB_BYTES
from pidts.shards.decide import RunDecision, ShardGroup, decide
from pidts.shards.structures import for_each_structure, misfitting, order_of

_EXACT_IN_DOUBLE = 53
_WIDTH = {"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "latin1": 1, "ascii": 1}
"""The largest number of bytes of a character, for each character set."""
_WITHIN = {"ascii": {"latin1", "utf8", "utf8mb3", "utf8mb4"}, "latin1": {"utf8", "utf8mb3", "utf8mb4"}}
_WITHIN |= {"utf8": {"utf8mb3", "utf8mb4"}, "utf8mb3": {"utf8", "utf8mb4"}}
"""For each character set, the character sets that have all of its characters."""


@dataclass(frozen=True, slots=True)
class EffectOfUnlock:
    """The effect that an unlock of a waiting change would have."""

    unfit: tuple[Member, ...] = ()
    """The members whose rows would not fit until they make the change themselves."""
    stays: tuple[str, ...] = ()
    """The reasons why the member would still wait."""


def effect_of_unlock(group: ShardGroup, mine: Arrival) -> EffectOfUnlock:
    """Returns what an unlock of the member's change would do."""
    unlocked = {**group.arrivals, mine.member: replace(mine, command=CommandKind.UNLOCK)}
    decision = decide(replace(group, arrivals=unlocked), mine.member)
    if isinstance(decision, RunDecision):
        agreed = decision.agreed
        is_unfit = for_each_structure(lambda one: bool(misfitting(one, agreed, takes)))
        writing = (member for member in decision.left if member not in group.arrivals)
        return EffectOfUnlock(unfit=tuple(member for member in writing if is_unfit(group.members[member])))
    found = tuple(
        f"column {name} is already on the target, with other values in the shard's rows than on the source"
        for name in decision.differing_columns
    )
    return EffectOfUnlock(stays=found or ("the target's table does not have the structure that the statement needs",))


def lacking_if_skipped(group: ShardGroup, mine: Arrival) -> tuple[str, ...]:
    """Returns why the member's later rows would not fit into the merged table if its change were skipped there."""
    return tuple(misfitting(mine.after, group.agreed, takes))


def takes(there: ColumnType, here: ColumnType) -> bool:
    """Whether a column of the type `there` can hold each value of the type `here`."""
    if here.is_integer or here.kind is Kind.DECIMAL:
        return _takes_number(there, here)
    if here.kind in {Kind.ENUM, Kind.SET}:
        return there.kind is here.kind and set(here.labels) <= set(there.labels)
    if here.is_text and there.is_text:
        return _takes_text(there, here)
    if here.is_bytes and there.is_bytes:
        return _takes_bytes(there, here)
    is_exact = here.kind is Kind.FLOAT and there.kind is Kind.DOUBLE and there.precision is None
    return is_exact and there.unsigned <= here.unsigned


def _takes_number(there: ColumnType, here: ColumnType) -> bool:
    if there.is_integer and here.is_integer:
        (low, high), (lowest, highest) = _range(here), _range(there)
        return lowest <= low and high <= highest
    if there.unsigned and not here.unsigned:
        return False
    digits, scale = _digits(here)
    if there.kind is Kind.DECIMAL:
        room, places = _digits(there)
        return digits <= room and scale <= places
    is_exact = there.kind is Kind.DOUBLE and there.precision is None
    return is_exact and here.is_integer and INTEGER_BITS[here.kind] <= _EXACT_IN_DOUBLE


def _range(kind: ColumnType) -> tuple[int, int]:
    bits = INTEGER_BITS[kind.kind]
    return (0, 2**bits - 1) if kind.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _digits(kind: ColumnType) -> tuple[int, int]:
    """Returns how many digits a number of this type has before and after the point."""
    if kind.is_integer:
        return len(str(_range(kind)[1])), 0
    scale = kind.scale or 0
    return (kind.precision or 10) - scale, scale


def _takes_text(there: ColumnType, here: ColumnType) -> bool:
    mine, theirs = (here.charset or "").lower(), (there.charset or "").lower()
    if mine != theirs and theirs not in _WITHIN.get(mine, ()):
        return False
    if order_of(here.collation) != order_of(there.collation):  # two texts may be equal in only one of the collations
        return False
    if there.kind is Kind.CHAR:  # a CHAR loses trailing spaces, and only values of a CHAR have none
        return here.kind is Kind.CHAR and (here.length or 1) <= (there.length or 1)
    if there.kind is Kind.VARCHAR:
        return _characters(here) <= (there.length or 0)
    if there.kind not in LOB_BYTES:
        return False
    is_same = mine == theirs and here.kind in LOB_BYTES
    width = 1 if is_same else _WIDTH.get(theirs, 4)
    return _characters(here) * width <= LOB_BYTES[there.kind]


def _characters(kind: ColumnType) -> int:
    return LOB_BYTES.get(kind.kind) or kind.length or 1


def _takes_bytes(there: ColumnType, here: ColumnType) -> bool:
    sized = {Kind.BINARY, Kind.VARBINARY}
    if there.kind not in sized | LOB_BYTES.keys() or here.kind not in sized | LOB_BYTES.keys():
        return False
    if there.kind is Kind.BINARY:  # a BINARY pads short values
        return here.kind is Kind.BINARY and here.length == there.length
    return (LOB_BYTES.get(here.kind) or here.length or 1) <= (LOB_BYTES.get(there.kind) or there.length or 0)
