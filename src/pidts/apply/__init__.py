"""Exactly once: rows and checkpoint commit together, whoever crashes and whenever."""

from pidts.apply.checkpoint import Outcome, settle
from pidts.apply.committer import Committer
from pidts.apply.complete import keyed
from pidts.apply.ddl import DdlRunner
from pidts.apply.load import Asked, load_chunk, load_whole
from pidts.apply.moved import Uneven
from pidts.apply.port import Target, TargetSession
from pidts.apply.prepare import ApplyRules, prepared
from pidts.apply.refused import RefusedRow
from pidts.apply.retry import Retry
from pidts.apply.schema_change import (
    SHARED,
    JournalOpen,
    OrderChanged,
    Party,
    PartyLeft,
    SchemaChange,
    dropped_by,
    left_by,
    owed_by,
)
from pidts.apply.versions import can_be_version

__all__ = [
    "SHARED",
    "ApplyRules",
    "Asked",
    "Committer",
    "DdlRunner",
    "JournalOpen",
    "OrderChanged",
    "Outcome",
    "Party",
    "PartyLeft",
    "RefusedRow",
    "Retry",
    "SchemaChange",
    "Target",
    "TargetSession",
    "Uneven",
    "can_be_version",
    "dropped_by",
    "keyed",
    "left_by",
    "load_chunk",
    "load_whole",
    "owed_by",
    "prepared",
    "settle",
]
