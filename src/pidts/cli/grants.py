"""`pidts grants`: prints the statements that give a task's accounts exactly the privileges that they need."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from pidts.cli.command import Debug, JsonInstead, TaskFile, opened
from pidts.model import ConfigError

if TYPE_CHECKING:
    from pidts.apply import Target
    from pidts.cli.server_urls import Address
    from pidts.source import SourceConfig
    from pidts.task.checks.grants import Side
    from pidts.task.config.task_file import TaskConfig

_BAD = "bad-target-url"
_SIDES: tuple[Side, ...] = ("source", "target")


def grants(
    task: TaskFile,
    only: Annotated[
        str,
        typer.Option(
            metavar="source|target",
            help="Print only this server's statements, ready for its client.",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Look at the source with this account, since the task's account may not exist yet. Give one URL for "
            "each source, in the order of the task file.",
        ),
    ] = None,
    target: Annotated[str, typer.Option(metavar="URL", help="Look at the target with this account.")] = "",
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The host in the names of MySQL accounts, e.g. 10.0.0.% or localhost.")
    ] = "",
    cutover: Annotated[
        bool,
        typer.Option(
            "--cutover", help="Also print the privileges that pidts cutover needs. Revoke them after the cutover."
        ),
    ] = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> int:
    """Print the SQL that grants the task's accounts the least privileges they need; change nothing."""
    if only not in {"", *_SIDES}:
        raise ConfigError("usage", f"--only must be source or target, not {only!r}", todo="See: pidts grants --help")
    from pidts.cli.server_urls import target_address
    from pidts.task.checks.grants import OtherAccounts, grants_of

    parts = opened(task, debug=debug, quiet=True)
    looks = OtherAccounts(
        sources=_sources(parts, source or ()),
        target=_looked_at(parts[0], target_address(target, os.environ)) if target else None,
        host=host,
    )
    found = list(grants_of(parts, looks, tuple(side for side in _SIDES if only in {"", side}), cutover=cutover))
    if as_json:
        print(json.dumps({"task": parts[0].name, "servers": [one.to_json() for one in found]}, ensure_ascii=False))
    else:
        print("\n\n".join(one.text() for one in found))
    return 0


def _sources(parts: Sequence[TaskConfig], urls: Sequence[str]) -> dict[str, SourceConfig]:
    """Returns, for each source id, the server and account of its `--source` URL; empty if no URL is given."""
    from pidts.cli.server_urls import source_address

    if urls and len(urls) != len(parts):
        names = ", ".join(part.source.source_id for part in parts)
        what = f"--source is given {len(urls)} times, and the task has {len(parts)} sources: {names}"
        raise ConfigError("usage", what, todo="Give --source once for each source, in this order, or not at all")
    found = [source_address(url, os.environ).source for url in urls]
    return {part.source.source_id: one for part, one in zip(parts, found, strict=False) if one is not None}


def _looked_at(config: TaskConfig, address: Address) -> Target:
    """Returns the task's target with the URL's account, since the task's own account may not exist yet.

    A URL of PostgreSQL must name the task's database, since privileges apply to one database.
    """
    spec = config.target
    if spec.warehouse:
        what = f"the task's target is a warehouse ({spec.type}), which has no accounts"
        raise ConfigError(_BAD, what, todo="Leave out --target")
    kind, database = ("mysql", "") if spec.is_datacenter else (spec.type, spec.database)
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    todo = (
        f"Give the URL of the task's target, with another account: {kind}://ADMIN@{host}:{spec.port}/{quote(database)}"
    )
    if address.type != kind:
        raise ConfigError(
            _BAD, f"--target is the URL of a {address.type}, and the task's target is a {kind}", todo=todo
        )
    if address.database != database:
        what = f"--target names the database {address.database!r}, and the task's target is the database {database!r}"
        raise ConfigError(_BAD, what, todo=todo)
    return address.target()
