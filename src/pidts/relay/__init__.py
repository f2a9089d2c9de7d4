"""The durable copy of a source's log: raw events in segments, and an index with an entry for each transaction."""

from pidts.relay.folder import list_segments, purge
from pidts.relay.reader import RelayReader
from pidts.relay.recovery import RelayState
from pidts.relay.segments.index import Origin
from pidts.relay.writer import RelayWriter
