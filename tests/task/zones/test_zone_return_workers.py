"""A run accepts the checkpoints that `pidts zones return` has written, even if it has fewer workers than before."""

from __future__ import annotations

import threading
from contextlib import closing

from tests.task.zones.returning_pair import Pair

from pidts.apply.claim import claim_workers, demand_all_workers
from pidts.cli.zones.command import configs_of
from pidts.source import connect
from pidts.source.position import log_end
from pidts.task.zones.zone_return_servers import ReturningZone


def test_a_task_out_of_the_zone_that_gets_fewer_workers_lacks_no_checkpoint(pair: Pair) -> None:
    pair.write_file(joins=True)
    directions = configs_of(pair.file)
    returning = ReturningZone("b", directions, threading.Event(), print)
    out, config = next((one, config) for one, config in directions.items() if one.source == "b")
    place = config.name, config.source.source_id
    with closing(config.target.server.connect()) as target, closing(connect(config.source.server)) as source:
        stored = target.meta.checkpoints.read(*place)
        claim_workers(target, *place, config.workers + 3, stored[0])
        returning._begin(out, config, {}, log_end(source))
        begun = target.meta.checkpoints.read(*place)
        assert len(begun) == config.workers
        demand_all_workers(target, *place, begun)
