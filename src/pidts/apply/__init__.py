"""Exactly once: rows and checkpoint commit together, whoever crashes and whenever."""

from pidts.apply.checkpoint import Outcome, settle
from pidts.apply.committer import Committer
from pidts.apply.ddl import DdlRunner, SchemaChange
from pidts.apply.port import Target, TargetSession
from pidts.apply.retry import Retry

__all__ = ["Committer", "DdlRunner", "Outcome", "Retry", "SchemaChange", "Target", "TargetSession", "settle"]
