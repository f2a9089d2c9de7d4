"""The text of a record's key in the meta tables is the text that earlier versions wrote, and is parsed to an equal key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import (
    DroppedColumnsKey,
    MergedTablesKey,
    MissedChangesKey,
    RecordKey,
    RemainingRowsKey,
    SourceTablesKey,
    record_key,
    record_text,
)

SOURCES = st.text("ab09.-_@ ", min_size=1)
KEYS = st.one_of(
    *(st.builds(kind, SOURCES) for kind in (SourceTablesKey, DroppedColumnsKey, RemainingRowsKey)),
    st.builds(MergedTablesKey),
    st.builds(MissedChangesKey, SOURCES, st.integers(0, 12)),
)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SourceTablesKey("north"), "north"),
        (MergedTablesKey(), "*"),
        (DroppedColumnsKey("north"), "* north"),
        (RemainingRowsKey("north"), "*- north"),
        (MissedChangesKey("north", 0), "*0 north"),
        (MissedChangesKey("- 1", 12), "*12 - 1"),
        (DroppedColumnsKey("-"), "* -"),
    ],
)
def test_the_text_stays_what_earlier_versions_wrote(key: RecordKey, text: str) -> None:
    assert record_text(key) == text
    assert record_key(text) == key


@given(key=KEYS)
def test_every_key_comes_back_from_its_text(key: RecordKey) -> None:
    assert record_key(record_text(key)) == key


@pytest.mark.parametrize("text", ["**", "*x north", "*1", "north*"])
def test_a_text_with_a_star_is_never_taken_for_a_source(text: str) -> None:
    with pytest.raises(ValueError, match="not the key of a record"):
        record_key(text)
