"""Rows that are expected to be as a transaction has read them, and what follows where they are not.

A server refuses the statement, the transaction ends without COMMIT, and its batch is tried again. For a minute from
then on all rows are read, and locked as they are read: another program that writes all the time keeps no batch from its
end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import PidtsError, Transient, Where
from pidts.reduce.identity import plain_zero
from pidts.target.text import combined

_CAREFUL_SECONDS = 60.0


@dataclass(slots=True)
class Caution:
    """Whether rows are locked as they are read. All sessions of one target share it.

    A copy in another process begins without: it has a clock of its own, and costs no more than one attempt.
    """

    _until: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether somebody else has changed rows between reading and writing within the last minute."""
        return time.monotonic() < self._until

    def __reduce__(self) -> tuple[type[Caution], tuple[()]]:
        """Says nothing of this process."""
        return Caution, ()

    def begin(self) -> None:
        """Begins a minute of it."""
        self._until = time.monotonic() + _CAREFUL_SECONDS

    def changed(self, table: str, error: PidtsError) -> Transient:
        """Begins it, and returns what the refusal of a statement about rows as they were expected means."""
        self.begin()
        what = f"rows of the target have changed between reading and writing ({error.what})"
        return Transient("target-busy", what, where=Where(table=table))


def places(keys: pa.Table, among: pa.Table) -> pa.Array:
    """Returns for each key its first place among others, NULL where it is not among them. Compared are bytes."""
    wanted, others = [[plain_zero(combined(table[name])) for name in keys.column_names] for table in (keys, among)]
    if len(wanted) == 1 and pa.types.is_integer(wanted[0].type):
        return pc.index_in(wanted[0], value_set=others[0])
    numbers = np.zeros(keys.num_rows + among.num_rows, np.int64)
    for one, other in zip(wanted, others, strict=True):
        numbers = _codes(pa.array(numbers)) * len(numbers) + _codes(pa.concat_arrays([one, other]))
    return pc.index_in(pa.array(numbers[: keys.num_rows]), value_set=pa.array(numbers[keys.num_rows :]))


def _codes(values: pa.Array) -> npt.NDArray[np.int64]:
    encoded: Any = values.dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
