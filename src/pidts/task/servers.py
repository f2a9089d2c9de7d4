"""From a task's configuration to the parts that it names."""

from __future__ import annotations

from pidts.apply import Target
from pidts.source import SourceConfig
from pidts.task.config.task_file import TaskConfig


def source_config(config: TaskConfig) -> SourceConfig:
    """How to reach the source."""
    source = config.source
    return SourceConfig(
        host=source.host,
        port=source.port,
        user=source.user,
        password=source.password,
        source_id=source.source_id,
        server_id=source.server_id,
        tls=source.tls,
    )


def target_of(config: TaskConfig) -> Target:
    """Where changes go; only its driver is loaded."""
    target = config.target
    if target.type == "postgresql":
        from pidts.target.postgres import PostgresTarget

        return PostgresTarget(
            target.host,
            target.port,
            target.user,
            target.password,
            target.database,
            tls=target.tls,
            meta_schema=target.meta_schema,
        )
    from pidts.target.mysql import MySqlTarget

    return MySqlTarget(
        target.host,
        target.port,
        target.user,
        target.password,
        tls=target.tls,
        meta_schema=target.meta_schema,
        variables=target.variables,
        max_packet=target.max_packet,
    )
