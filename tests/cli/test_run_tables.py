"""The value of `--resync` may be omitted, which means all tables."""

from __future__ import annotations

import pytest

from pidts.cli.app import resynced, with_tables
from pidts.model import ConfigError


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("run t.yaml --resync", "run t.yaml --resync *"),
        ("run t.yaml --resync --json", "run t.yaml --resync * --json"),
        ("run --resync t.yaml", "run --resync * t.yaml"),
        ("run t.yaml --resync a.b,c", "run t.yaml --resync a.b,c"),
        ("run t.yaml", "run t.yaml"),
    ],
)
def test_the_value_of_resync_may_be_omitted(words: str, completed: str) -> None:
    assert with_tables(words.split()) == completed.split()


def test_no_table_means_all_of_them() -> None:
    assert resynced(None) is None
    assert resynced(["*"]) == ()
    assert resynced(["a.b, c.*", "d"]) == ("a.b", "c.*", "d")
    with pytest.raises(ConfigError):
        resynced([""])
