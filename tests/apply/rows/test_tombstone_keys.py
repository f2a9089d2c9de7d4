"""Keys and places of tombstones have the texts under which targets keep them."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest

from pidts.apply.rows.tombstone_keys import key_texts, lsn_texts
from pidts.model import Lsn


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": [1, -2]}, ["1|", "-2|"]),
        ({"a": ["x", ""]}, ["x|", "|"]),
        ({"a": ["a|", "b\\", "c "]}, ["a\\||", "b\\\\|", "c |"]),
        ({"a": ["ü", "x" * 179, "z"]}, ["ü|", "x" * 179 + "|", "z|"]),
        ({"a": [1, 2], "b": ["x", "|"], "c": [b"\0", b"q"]}, ["1|x|00|||", "2|\\||71|||"]),
        ({"a": []}, []),
    ],
)
def test_keys_have_the_texts_that_targets_keep(columns: dict[str, Any], expected: list[str]) -> None:
    assert key_texts(pa.table(columns)).to_pylist() == expected


@pytest.mark.parametrize("value", ["x" * 180, "a\nb", "\x7f", "ü\u200b"])
def test_long_and_unprintable_keys_become_digests(value: str) -> None:
    digest = sha256(f"{value}|".encode()).hexdigest()
    assert key_texts(pa.table({"a": ["x", value]})).to_pylist() == ["x|", f"sha256:{digest}"]


def test_places_have_the_texts_of_single_places() -> None:
    chance = random.Random(4)
    limits = (10**4, 2**32, 10**12, 2**32)
    lsns = [Lsn(*(chance.randrange(limit) for limit in limits)) for _ in range(200)] + [Lsn(0, 0, 0)]
    found = pa.array([lsn.to_bytes() for lsn in lsns], pa.binary(Lsn.SIZE))
    assert lsn_texts(found).to_pylist() == list(map(str, lsns))
    assert lsn_texts(found.slice(7, 5)).to_pylist() == list(map(str, lsns[7:12]))
    assert lsn_texts(found.slice(3, 0)).to_pylist() == []
