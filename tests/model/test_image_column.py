"""The values of one column are read from an array of row images, even if the array is a slice or lacks images."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pidts.model import image_column

_IMAGES = pa.StructArray.from_arrays([pa.array([1, 2, 3]), pa.array(["a", None, "c"])], names=["n", "s"])
_SOME = pa.StructArray.from_arrays(_IMAGES.flatten(), names=["n", "s"], mask=pa.array([True, False, False]))


@pytest.mark.parametrize(
    ("images", "found"),
    [
        (_IMAGES, [1, 2, 3]),
        (_IMAGES.slice(1), [2, 3]),
        (_SOME, [None, 2, 3]),
        (_SOME.slice(1), [2, 3]),
        (_SOME.slice(0, 1), [None]),
        (_IMAGES.slice(0, 0), []),
        (pa.nulls(2, _IMAGES.type), [None, None]),
    ],
)
def test_a_column_has_the_values_of_the_images(images: pa.StructArray, found: list[int | None]) -> None:
    column = image_column(images, 0)
    assert column.type == pa.int64()
    assert column.to_pylist() == found


@pytest.mark.parametrize("images", [_IMAGES, _SOME, _IMAGES.slice(0, 0), pa.nulls(2, _IMAGES.type)])
def test_a_column_that_the_images_lack_is_an_error(images: pa.StructArray) -> None:
    with pytest.raises(IndexError):
        image_column(images, images.type.get_field_index("N"))
