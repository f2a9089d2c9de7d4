"""The store returns what was read about a key, from memory or from its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pidts.task.compare import key_store
from pidts.task.compare.key_store import KeyStore


@pytest.fixture
def store() -> Iterator[KeyStore]:
    with closing(KeyStore()) as made:
        yield made


def _key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def test_the_last_that_was_put_for_a_key_is_found(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_store, "_KEYS_A_QUERY", 7)
    store.put({_key(number): (number, b"old") for number in range(40)})
    store.put({_key(number): (-number, b"") for number in range(0, 40, 2)})
    store.put({})
    expected = {_key(number): (number, b"old") if number % 2 else (-number, b"") for number in range(5, 35)}
    assert store.found([_key(number) for number in range(5, 35)]) == expected
    assert store.found([_key(100)]) == {}
    assert store.found([]) == {}
    assert store.found([_key(39), _key(100)]) == {_key(39): (39, b"old")}


def test_a_whole_row_says_all_that_the_later_records_before_it_say(store: KeyStore) -> None:
    for id_, is_whole in ((1, True), (3, False), (2, False), (7, True), (8, False)):
        store.put_later(_key(1), id_, is_whole=is_whole)
    store.put_later(_key(2), 4, is_whole=False)
    assert store.later([_key(1), _key(2), _key(3)]) == {_key(1): [7, 8], _key(2): [4]}
