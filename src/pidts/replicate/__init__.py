"""From a source's log into its relay: the process that receives and stores, and decides nothing about the data."""

from pidts.replicate.process import run_process
from pidts.replicate.replicator import Replicator, ReplicatorConfig
from pidts.replicate.resume import Applied
from pidts.replicate.status import ReplicatorState, is_silent, read_status, silent_since

__all__ = [
    "Applied",
    "Replicator",
    "ReplicatorConfig",
    "ReplicatorState",
    "is_silent",
    "read_status",
    "run_process",
    "silent_since",
]
