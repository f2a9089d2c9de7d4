"""The set-up compiles everything that a change needs: it really reads invented rows."""

from __future__ import annotations

import pytest

from pidts.replicate.warm import warm


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_the_invented_rows_are_read(kernel, monkeypatch):
    monkeypatch.setenv("PIDTS_KERNEL", kernel)
    assert warm() == 4
