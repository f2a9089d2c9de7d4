"""Makes the context of an attempt's batches, from the task file and the result of the start."""

from __future__ import annotations

from pathlib import Path

from pidts.apply import ApplyRules, TargetSession
from pidts.batch.context import JobContext, watched_by
from pidts.model import Lsn
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.start import StartState


def job_context(
    config: TaskConfig,
    begun: StartState,
    target: TargetSession,
    *,
    change_no: int,
    safe_until: Lsn | None,
    has_locks: bool,
    shares_tables: bool,
) -> JobContext:
    """Returns the context of an attempt's batches. `shares_tables`: the task has several sources."""
    writers = 1 if config.target.is_datacenter else config.workers
    epoch = begun.checkpoints[0].epoch
    return JobContext(
        task=config.name,
        source=config.source.server,
        relay=config.relay,
        staging=staging_folder(config) / str(epoch),
        target=config.target.server,
        workers=writers,
        epoch=epoch,
        change_no=change_no,
        structures=begun.structures,
        dialect=begun.dialect,
        charsets=begun.charsets,
        split_rows=config.split_transactions,
        rules=begun.rules,
        writing=ApplyRules(
            source=config.source.source_id,
            version_column=config.version_column,
            converges=config.zones.converges,
            zone=config.zone,
            into_zone=config.into_zone,
            owners=config.zones.owners,
            on_divergence=config.on_divergence,
            has_locks=has_locks,
            keeps_changes=config.target.keeps_changes,
            lock_limit=config.lock_limit,
            safe=config.safe_mode,
            safe_until=safe_until,
            beside=shares_tables,
            filters=begun.rules,
        ),
        watched=watched_by(target, map(begun.rules.target_table, begun.structures.values()), writers),
        copy_threads=config.limits.threads,
        copy_rate=config.limits.rate or 0,
    ).with_different_shards()


def staging_folder(config: TaskConfig) -> Path:
    """Returns the folder for rows that the copy has read and not loaded. All attempts of this part share it."""
    return config.relay / config.source.source_id / "chunks" / config.name
