"""Each change reaches each zone on one path, and none returns."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.zones import Feed, carried, unreached

RING = [("a", "b"), ("b", "c"), ("c", "a")]
STAR = [*itertools.product("h", "xyz"), *itertools.product("xyz", "h")]
MESH = list(itertools.permutations("abcd", 2))


def mistakes(ways: Mapping[Feed, Collection[str]]) -> list[str]:
    """Returns the mistakes in `ways`: the zones whose changes would reach a zone twice, or would come back."""
    wrong = []
    first: dict[tuple[str, str], str] = {}
    for (source, target), zones in sorted(ways.items()):
        for zone in sorted(zones):
            if zone == target:
                wrong.append(f"the changes of zone {zone} would come back to it from zone {source}")
            elif (other := first.setdefault((zone, target), source)) != source:
                wrong.append(f"the changes of zone {zone} would reach zone {target} twice, from {other} and {source}")
    return wrong


def forwards(feeds: list[Feed]) -> dict[str, str]:
    return {"".join(feed): "".join(sorted(zones - {feed[0]})) for feed, zones in carried(feeds).items()}


def test_a_ring_forwards_until_the_next_zone_is_the_origin() -> None:
    assert forwards(RING) == {"ab": "c", "bc": "a", "ca": "b"}


def test_a_hub_forwards_all_but_what_is_of_the_leaf_and_a_leaf_forwards_nothing() -> None:
    assert forwards(STAR) == {"hx": "yz", "hy": "xz", "hz": "xy", "xh": "", "yh": "", "zh": ""}


def test_a_mesh_forwards_nothing() -> None:
    assert set(forwards(MESH).values()) == {""}


def test_a_chain_ends_in_a_leaf() -> None:
    feeds = [("a", "b"), ("b", "a"), ("b", "p")]
    assert forwards(feeds) == {"ab": "", "ba": "", "bp": "a"}
    assert unreached(feeds, leaves="p") == []
    assert unreached(feeds) == [("p", "a"), ("p", "b")]


def test_zones_that_changes_do_not_reach_are_named() -> None:
    assert unreached([("a", "b")], "abc") == [("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")]


@pytest.mark.parametrize(
    ("ways", "wrong"),
    [
        ({("a", "b"): "a", ("b", "a"): "ba"}, ["the changes of zone a would come back to it from zone b"]),
        (
            {("a", "c"): "a", ("b", "c"): "ab"},
            ["the changes of zone a would reach zone c twice, from a and b"],
        ),
        ({("a", "b"): "a", ("b", "c"): "ab"}, []),
    ],
)
def test_feeds_that_bring_a_change_twice_are_wrong(ways: dict[Feed, str], wrong: list[str]) -> None:
    assert mistakes(ways) == wrong


@settings(max_examples=examples(200), deadline=None)
@given(feeds=st.sets(st.sampled_from(list(itertools.permutations("abcde", 2)))))
def test_one_path_leads_from_each_zone_to_each_zone_that_it_reaches(feeds: set[Feed]) -> None:
    ways = carried(feeds)
    assert mistakes(ways) == []
    for zone in {name for feed in feeds for name in feed}:
        reached = {zone}
        for _ in range(5):
            reached |= {target for source, target in feeds if source in reached}
        mine = [feed for feed, zones in ways.items() if zone in zones]
        assert sorted(target for _, target in mine) == sorted(reached - {zone})
        assert all(source in reached for source, _ in mine)
        assert {other for other in reached if (zone, other) not in unreached(feeds)} == reached
