"""If the log has only some columns of a row image, its JSON has these columns."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.apply.table_history import PLAIN, batch_of

from pidts.binlog.row_values import rows_of
from pidts.excerpt.rows import json_images
from pidts.model import ChangeBatch, Op

NAMES = [column.name for column in PLAIN.columns]
VALUES = {"id": st.integers(0, 9), "a": st.none() | st.integers(0, 9), "b": st.none() | st.text("xy", max_size=2)}
ROWS = st.fixed_dictionaries({**VALUES, "u": st.none() | st.integers(0, 9)})
HELD = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)


@st.composite
def changes(draw):
    op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE]))
    before = None if op is Op.INSERT else draw(ROWS)
    after = None if op is Op.DELETE else draw(ROWS)
    # Other kinds of changes have the same few sets of columns.
    held = draw(st.none() | st.tuples(HELD | st.just(NAMES[:2]), HELD | st.just(NAMES[:2])))
    return (op, before, after), held


def texts(batch, side):
    return [None if text is None else json.loads(text) for text in json_images(PLAIN, batch.rows, side).to_pylist()]


def test_an_insert_after_a_delete_with_the_same_columns_keeps_its_values():
    old, new = {"id": 1, "a": 1, "b": "x", "u": None}, {"id": 9, "a": 9, "b": None, "u": None}
    held = (["id", "a"], ["id", "a"])
    batch = batch_of(PLAIN, [(Op.DELETE, old, None), (Op.INSERT, None, new)], held=[held, held])
    assert texts(batch, "before") == [{"id": 1, "a": 1}, None]
    assert texts(batch, "after") == [None, {"id": 9, "a": 9}]


@given(st.lists(changes(), min_size=1, max_size=8))
def test_each_image_has_the_columns_that_its_own_bitmap_names(drawn):
    made, held = zip(*drawn, strict=True)
    batch = batch_of(PLAIN, made, held=held)
    expected = [
        [
            None if image is None else {n: v for n, v in image.items() if names is None or n in names[side]}
            for (_, *images), names in drawn
            for image in [images[side]]
        ]
        for side in (0, 1)
    ]
    assert [texts(batch, "before"), texts(batch, "after")] == expected
    assert [list(images) for images in list(zip(*rows_of(batch), strict=True))[1:]] == expected


def test_an_insert_with_two_bitmaps_has_the_columns_of_the_second():
    """The INSERT is the second half of an update, and the first half belongs to another worker."""
    row = {"id": 1, "a": 2, "b": None, "u": None}
    update = batch_of(PLAIN, [(Op.UPDATE, row, row)], held=[(["id"], ["id", "a"])]).rows
    insert = batch_of(PLAIN, [(Op.INSERT, None, row)], held=[((), ["id", "a"])]).rows
    batch = ChangeBatch(PLAIN, insert.set_column(4, insert.schema.field(4), update.column("partial")))
    assert texts(batch, "after") == [{"id": 1, "a": 2}]
    assert [new for _, _, new in rows_of(batch)] == [{"id": 1, "a": 2}]
