"""Formats a change event as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pidts.excerpt.json_value import json_value
from pidts.model import ColumnType, DataChange, SchemaEvent, Table


def event_line(event: DataChange | SchemaEvent, source: str, table: Table | None = None) -> str:
    """Returns one event without a line end. `table` is the structure of a row event."""
    head: dict[str, Any] = {
        "lsn": str(event.lsn),
        "prev_lsn": str(event.prev_lsn),
        "zone": event.source_zone_id,
        "source": source,
    }
    tail: dict[str, Any] = {
        "ts": datetime.fromtimestamp(event.timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gtid": event.gtid,
    }
    if isinstance(event, SchemaEvent):
        what = {"database": event.schema, "table": None, "op": "ddl"}
        images: dict[str, Any] = {"old": None, "new": None, "statement": event.statement}
    else:
        what = {"database": event.table.schema, "table": event.table.name, "op": event.op.name.lower()}
        types = {column.name: column.type for column in table.columns} if table else {}
        images = {"old": _image(event.old_data, types), "new": _image(event.new_data, types)}
    return json.dumps({**head, **what, **tail, **images, "is_retry": event.is_retry}, ensure_ascii=False)


def _image(image: Mapping[str, Any] | None, types: Mapping[str, ColumnType]) -> dict[str, Any] | None:
    return None if image is None else {name: json_value(value, types.get(name)) for name, value in image.items()}
