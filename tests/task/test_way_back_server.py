"""The task file of `pidts cutover --reverse` leads back to the server that was the source at the cutover.

It is written whole, and a file of an earlier cutover is not taken for it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pidts.model import ConfigError, Cutover, CutoverStage, TableName
from pidts.task.config.current_server import choose_server
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.cutover.reverse import reverse_task, write_reverse

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


def task(folder: Path) -> TaskConfig:
    (folder / "first.txt").write_text("secret")
    (folder / "shop.yaml").write_text(TASK % f", {', '.join(SERVERS.splitlines())}")
    return load_task(folder / "shop.yaml")


def test_a_file_of_an_earlier_cutover_is_not_used_for_a_later_one(tmp_path: Path) -> None:
    config, tables = task(tmp_path), [TableName("shop", "orders")]
    text = reverse_task([config], RECORD, tables)
    path = write_reverse(config, text)
    assert path == tmp_path / "shop-back.yaml"
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    path.write_text(text.replace("host: first", "host: first.example"))  # the user has changed an address
    with pytest.raises(ConfigError, match="exists already") as same:
        write_reverse(config, text)
    assert same.value.todo == "Remove the file, or use it as it is"

    later = reverse_task([config], replace(RECORD, position="bin.000001:900"), tables)
    with pytest.raises(ConfigError, match="does not begin at the switch of this cutover") as other:
        write_reverse(config, later)
    assert other.value.todo == "Remove the file, then run this command again"
    for half in ("", text[: len(text) // 3], "[", "mysql-instances: []"):
        path.write_text(half)
        with pytest.raises(ConfigError, match="does not begin at the switch"):
            write_reverse(config, text)


def test_a_text_that_cannot_be_written_whole_leaves_no_part_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_reverse(task(tmp_path), "name: shop-back\n" * 10_000 + "\ud800")
    assert not (tmp_path / "shop-back.yaml").exists()


def test_keys_that_mean_the_same_in_both_directions_are_kept(tmp_path: Path) -> None:
    text = TASK % f", enable-gtid: true, {', '.join(SERVERS.splitlines())}"
    ours = "pidts: {on-divergence: lock, alerts: {command: tell, lag: 5m}, relay: queue}\n"
    (tmp_path / "first.txt").write_text("secret")
    (tmp_path / "shop.yaml").write_text(text + ours)
    config, tables = load_task(tmp_path / "shop.yaml"), [TableName("shop", "orders")]
    back = yaml.safe_load(reverse_task([config], replace(RECORD, gtid="0-1-7"), tables))
    assert back["pidts"] == {"on-divergence": "lock", "alerts": {"command": "tell", "lag": "5m"}}
    assert back["mysql-instances"][0]["enable-gtid"] is True
    without = yaml.safe_load(reverse_task([config], RECORD, tables))
    assert "enable-gtid" not in without["mysql-instances"][0], "the new server has no GTIDs"
    path = write_reverse(config, yaml.safe_dump(back))
    assert load_task(path).source.use_gtid
