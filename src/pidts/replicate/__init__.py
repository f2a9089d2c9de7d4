"""The replicator: receives a source's log and stores it in the relay, without decoding rows."""

from pidts.replicate.heartbeat import HeartbeatConfig
from pidts.replicate.process import run_process, run_receiver
from pidts.replicate.proof import (
    demand_begins_again,
    demand_checkpoint_in_log,
    end_of_same_log,
    log_file_at,
    log_file_named,
)
from pidts.replicate.replicator import Replicator, ReplicatorConfig
from pidts.replicate.resume import AppliedPlace
from pidts.replicate.standby_start import Looked, demand_standby, first_unreceived
from pidts.replicate.status import (
    RELAY_FULL,
    ReceiveProblem,
    ReplicatorState,
    heard_at,
    is_silent,
    not_receiving,
    read_status,
    silent_since,
)
