"""The effect of a ddl command on rows is shown before the command is given."""

from __future__ import annotations

import pytest

from pidts.shards.preview import effect_of_unlock, lacking_if_skipped

from .test_decide import V0, V1, arrival, group, member, table


@pytest.mark.parametrize(
    ("before", "after", "unfit"),
    [("a", "a b", False), ("a", "x", True), ("a:bigint", "a", True), ("a b", "a", False), ("a", "a!", True)],
)
def test_rows_that_do_not_fit_after_an_unlock(before: str, after: str, *, unfit: bool) -> None:
    old, own = table(before), arrival(0, table(before), table(after))
    assert effect_of_unlock(group(old, [old, old], own), own).unfit == ((member(1),) if unfit else ())


@pytest.mark.parametrize(
    ("agreed", "after", "stays"),
    [("a b=7", "a b=7", False), ("a b=7", "a b=8", True), ("a b", "a b=8", True), ("a", "a b=8", False)],
)
def test_changes_that_still_wait_after_an_unlock(agreed: str, after: str, *, stays: bool) -> None:
    there, own = table(agreed), arrival(0, V0, table(after))
    found = effect_of_unlock(group(there, [V0, there], own), own).stays
    assert found == (
        ("column b is already on the target, with other values in the shard's rows than on the source",)
        if stays
        else ()
    )


def test_rows_that_wait_do_not_halt() -> None:
    old, own, other = table("a"), arrival(0, table("a"), table("x")), arrival(1, table("a"), table("y"))
    assert effect_of_unlock(group(old, [old, old], own, other), own).unfit == ()


@pytest.mark.parametrize(
    ("after", "lacks"),
    [
        ("a b", ("column b is missing",)),
        ("a:bigint", ("column a cannot hold all values",)),
        ("", ()),
        ("x", ("column x is missing",)),
    ],
)
def test_rows_of_one_whose_change_is_skipped(after: str, lacks: tuple[str, ...]) -> None:
    own = arrival(0, V0, table(after))
    assert lacking_if_skipped(group(V0, [V0, V0], own), own) == lacks
    assert lacking_if_skipped(group(V1, [V1, V0], own), own) == tuple(one for one in lacks if " b " not in one)
