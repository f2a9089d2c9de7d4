"""Finds out which keys a copy under way has still to read, and at which keys the target may be ahead of the log.

A key whose row could not be completed from the log is recorded on the target, and counts as unread again. The copy does
not end before it has read all recorded keys, see `pidts.batch.copy.rereads`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator

import pyarrow as pa

from pidts.model import Lsn
from pidts.model.records.altered_record import reading_record
from pidts.plan import CopyMode, CopyState
from pidts.plan.copy.state import MOST_REREADS, Phase

Key = tuple[object, ...]
IsUnread = Callable[[Key], bool]
"""Whether the copy reads this key after the batch is on the target."""
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""The bytes that Arrow writes after the last rows of a stream."""
IsAhead = Callable[[Key], bool]
"""Whether the target's row with this key may already be in a state that it reaches only after the batch."""


def unread(copy: CopyState | None, *, same_keys: bool) -> IsUnread | None:
    """Returns a function that says whether a key is unread after the batch; None if no copy is under way.

    `same_keys`: each row has the same key on the target as on the source. The source orders keys by its collations, but
    this module can only compare integers. So keys that are not integers count as unread only as long as no key was
    read. Recorded keys are ignored here, so a key that is recorded twice is read twice.
    """
    if copy is None:
        return None
    reads = copy.phase is Phase.ROWS
    if reads and copy.after is None and copy.upto is None:
        return lambda _: True
    if reads and same_keys and copy.upto is not None:
        after, upto = copy.after, copy.upto
        if after is None:
            return lambda key: _are_numbers(key, upto) and key <= upto
        return lambda key: _are_numbers(key, after, upto) and after < key <= upto
    return lambda _: False


def ahead(copy: CopyState | None, *, same_keys: bool, all_changes: bool) -> IsAhead | None:
    """Returns a function that says whether the target's row of a key may be newer than the batch; None if no copy runs.

    `same_keys` as in `unread`. `all_changes`: the batch has all changes of the table. If it lacks some, they may have
    brought a row to any key. If the target table had rows before its copy, any key may have a different row until all
    rows were read.
    """
    if copy is None:
        return None
    if not all_changes or not (copy.mode is CopyMode.NEW or copy.is_read):
        return lambda _: True
    if not copy.ahead:
        return lambda _: False
    # The batch settles all loaded rows. So a key that stays unread has not been loaded.
    is_unread = unread(copy, same_keys=same_keys)
    return foreign(copy, same_keys=same_keys) or (lambda key: is_unread is None or not is_unread(key))


def foreign(copy: CopyState | None, *, same_keys: bool) -> IsAhead | None:
    """Returns a function that says whether a key's row on the target may have wrong unique values; None if no row can.

    Rows that the target had before the copy may have wrong values. So may loaded rows that this batch does not settle;
    their keys are greater than the last key that is settled (`pidts.plan.copy.state`). If such a row were written, the
    target could remove a settled row with the same unique value, and that row would never be read again:

        copied up to 1: (1, u=3)    the target's (3, u=3) is wrong    UPDATE 3 SET a = 1, logged without u
    """
    if copy is None or copy.is_read or (copy.mode is CopyMode.NEW and not (copy.ahead and copy.reads > copy.settled)):
        return None
    after = copy.after if same_keys and copy.phase is Phase.ROWS else None
    return lambda key: after is None or not (_are_numbers(key, after) and key <= after)


def records(lsns: pa.Array, keys: pa.Table) -> Iterator[tuple[Lsn, str]]:
    """Yields texts in log order, each with up to `MOST_REREADS` keys and the Lsn of the last key's change."""
    for begin in range(0, keys.num_rows, MOST_REREADS):
        some = keys.slice(begin, MOST_REREADS)
        yield Lsn.from_bytes(lsns[begin + some.num_rows - 1].as_py()), packed(some)


def packed(keys: pa.Table) -> str:
    """Returns rows of any type, for example keys, as one text."""
    sink = pa.BufferOutputStream()
    # Without these options, the library would look them up in the environment each time.
    with pa.ipc.new_stream(sink, keys.schema, options=pa.ipc.IpcWriteOptions()) as writer:
        writer.write_table(keys)
    return b64encode(sink.getvalue()).decode()


def packed_each(rows: pa.Table) -> list[str]:
    """Returns, for each row, the text that `packed` would return, without a new writer for each row."""
    schema = rows.schema.serialize()
    return [
        b64encode(b"".join((schema, batch.slice(place, 1).serialize(), _END))).decode()
        for batch in rows.to_batches()
        for place in range(batch.num_rows)
    ]


def unpacked(text: str, record: str = "row_lock") -> pa.Table:
    """Returns the rows of a text that `packed` has made. `record` is the meta table with the text."""
    with reading_record(record), pa.ipc.open_stream(b64decode(text)) as reader:
        return reader.read_all()


def _are_numbers(*keys: Key) -> bool:
    return len({len(key) for key in keys}) == 1 and all(type(value) is int for key in keys for value in key)
