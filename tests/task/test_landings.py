"""Whoever changes where rows land while a task is stopped is told so at the next start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pidts.model import Checkpoint, Column, ColumnType, ConfigError, Kind, Lsn, Table, TableName
from pidts.rules import AllowList, ColumnMapping, Extract, RouteRule, Routes, Rules
from pidts.target.values import ValuesTarget
from pidts.task import landings

TABLE = Table(TableName("shop", "t_1"), (Column("id", ColumnType(Kind.INT), nullable=False),))
ROUTES = Routes((RouteRule("shop", "t_*", "all", "t", Extract("t_(.*)", "n"), None, Extract("(.*)", "o")),), "s", True)
MAPPING = ColumnMapping("shop", "t_*", "id", "partition id", ("1", "", "t", "_"))


@dataclass
class Source:
    source_id: str = "s"


@dataclass
class Config:
    rules: Rules
    name: str = "t"
    source: Source = field(default_factory=Source)
    path: Path = Path("t.yaml")

    @property
    def allow(self) -> AllowList:
        return self.rules.allow


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        (Rules(routes=ROUTES, mappings=(MAPPING,)), ""),
        (Rules(AllowList(do_dbs=("shop",)), routes=ROUTES, mappings=(MAPPING,)), ""),
        (Rules(routes=Routes((*ROUTES.rules, RouteRule("crm", "", "x")), "s", True), mappings=(MAPPING,)), ""),
        (Rules(mappings=(MAPPING,)), "by another route"),
        (Rules(routes=Routes(ROUTES.rules, "other", True), mappings=(MAPPING,)), "by another route"),
        (Rules(routes=ROUTES), "another column mapping"),
        (Rules(AllowList(ignore_dbs=("shop",))), ""),
    ],
)
def test_rows_land_where_those_did_that_are_there(after: Rules, refused: str) -> None:
    target = ValuesTarget("landings")
    with closing(target.connect()) as session:
        session.prepare_meta()
        session.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4)))
        session.begin()
        session.save_structures("t", "s", Lsn(0, 1, 4), {TABLE.name: TABLE})
        session.commit()
        before: Any = Config(Rules(routes=ROUTES, mappings=(MAPPING,)))
        landings.demand_unmoved(before, session)  # nothing is noted yet
        landings.remember(before, session)
        now: Any = Config(after)
        if refused:
            with pytest.raises(ConfigError, match=refused) as raised:
                landings.demand_unmoved(now, session)
            assert raised.value.code == "rules-moved"
        else:
            landings.demand_unmoved(now, session)
    target.forget()
