"""The previous version can read the record of a cutover, and this version can read the previous version's record."""

from __future__ import annotations

import json

import pytest

from pidts.model import ConstraintKind, Cutover, CutoverCommand, TableName

ORDERS = TableName("shop", "orders")


def test_a_record_keeps_the_kinds_and_names_the_foreign_keys_as_before() -> None:
    names = ("bought", "positive", "by_year", "changed", "id")
    made = tuple((kind, ORDERS, name) for kind, name in zip(ConstraintKind, names, strict=True))
    text = Cutover(constraints=made).dumps()
    assert json.loads(text)["foreign_keys"] == [["shop", "orders", "bought"]]
    assert Cutover.loads(text).constraints == made


@pytest.mark.parametrize("name", ["foreign_keys", "constraints"])
def test_earlier_records_have_foreign_keys_alone(name: str) -> None:
    data = json.loads(Cutover().dumps())
    del data["foreign_keys"], data["checks"], data["keys"], data["on_update"], data["counters"]
    data[name] = [["shop", "orders", "bought"]]
    assert Cutover.loads(json.dumps(data)).constraints == ((ConstraintKind.FOREIGN_KEY, ORDERS, "bought"),)


def test_fields_that_a_later_version_adds_are_not_read() -> None:
    record = Cutover(command=CutoverCommand("db1", 7, 12.5))
    data = json.loads(record.dumps())
    data["added"] = data["command"]["added"] = 1
    assert Cutover.loads(json.dumps(data)) == record
