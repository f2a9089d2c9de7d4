"""Programs group rows without the modules that pyarrow would import for that; everybody else finds these modules."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from pidts.hidden_modules import hide_modules, show_pandas

hide_modules()
import pyarrow as pa

rows = pa.table({"key": [1, 1, 2], "count": [1, 2, 3]})
sums = rows.group_by(["key"], use_threads=False).aggregate([("count", "sum")])
assert sums.to_pydict() == {"key": [1, 2], "count_sum": [3, 3]}
assert "pyarrow.acero" in sys.modules
assert "pyarrow.dataset" not in sys.modules
assert "pandas" not in sys.modules

import pyarrow.dataset

assert pyarrow.dataset.dataset(rows).count_rows() == 3
joined = rows.join(rows, "key", right_suffix=" again")
assert joined.num_rows == 5

show_pandas()
import pandas

assert rows.to_pandas().shape == (3, 2)
"""


def test_rows_are_grouped_without_modules_that_others_still_find() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
