"""What set-up has compiled is the whole way of a change: rows really come through."""

from __future__ import annotations

import pytest

from pidts.replicate.warm import warm


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_the_invented_rows_are_read(kernel, monkeypatch):
    monkeypatch.setenv("PIDTS_KERNEL", kernel)
    assert warm() == 4
