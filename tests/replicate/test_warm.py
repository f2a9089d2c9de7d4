"""The set-up really reads invented rows, so it compiles every function that reading needs."""

from __future__ import annotations

import pytest

from pidts.replicate.warm import warm


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_the_invented_rows_are_read(kernel, monkeypatch):
    monkeypatch.setenv("PIDTS_KERNEL", kernel)
    assert warm() == 4
