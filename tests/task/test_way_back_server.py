"""The task file of `pidts cutover --reverse` leads back to the server that was the source at the cutover."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pidts.model import Cutover, CutoverStage, TableName
from pidts.task.config.current_server import choose_server
from pidts.task.config.task_file import load_task
from pidts.task.cutover.reverse import reverse_task

TASK = """\
name: shop
task-mode: all
target-database: {type: mysql, host: new, user: u}
mysql-instances: [{source-id: a, block-allow-list: all%s}]
block-allow-list: {all: {do-dbs: [shop]}}
"""
SERVERS = """\
from: {host: first, port: 3307, user: reader, password-file: first.txt}
standbys: [{host: second}, {host: third, port: 3308, user: other, password: plain}]
"""
RECORD = Cutover(stage=CutoverStage.DONE, position="bin.000001:4")


@pytest.mark.parametrize("is_inline", [True, False], ids=["inline", "source file"])
@pytest.mark.parametrize(
    ("chosen", "login"),
    [
        ("", {"host": "first", "port": 3307, "user": "reader", "password-file": "first.txt"}),
        ("second:3307", {"host": "second", "port": 3307, "user": "reader", "password-file": "first.txt"}),
        ("third:3308", {"host": "third", "port": 3308, "user": "other", "password": "plain"}),
    ],
)
def test_after_a_failover_the_way_back_leads_to_the_standby(
    tmp_path: Path, chosen: str, login: dict[str, object], *, is_inline: bool
) -> None:
    (tmp_path / "first.txt").write_text("secret")
    servers = ", ".join(SERVERS.splitlines())
    (tmp_path / "shop.yaml").write_text(TASK % (f", {servers}" if is_inline else ""))
    if not is_inline:
        (tmp_path / "a.yaml").write_text(f"source-id: a\n{SERVERS}")
    config = load_task(tmp_path / "shop.yaml")
    if chosen:
        choose_server(config.source, config.relay, chosen)
        config = load_task(tmp_path / "shop.yaml")
    back = yaml.safe_load(reverse_task([config], RECORD, [TableName("shop", "orders")]))
    assert back["target-database"] == {"type": "mysql"} | login
