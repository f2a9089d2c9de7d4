"""The table of privileges for a direction between zones is equal to the output of `pidts grants`."""

from __future__ import annotations

import re

from tests.docs.test_pages import ROOT

from pidts.target.mysql.privileges import needed


def test_the_privileges_of_a_direction_on_its_target_are_the_needed_ones() -> None:
    page = (ROOT / "docs" / "operate" / "zones.md").read_text("utf-8")
    found = {
        place: set(names.split(", "))
        for names, place in re.findall(r"^\| `b` \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    }
    wanted = list(needed(["shop"], "meta", is_zone=True))
    assert found == {
        "the schemas": {one.name for one in wanted if one.schema == "shop"},
        "the meta schema": {one.name for one in wanted if one.schema == "meta"},
    }
