"""A change event as a line of JSON.

Values: integers and floats are numbers (64-bit ones too: read them with an exact parser); DECIMAL is text, so that
no digit is lost; DATE, DATETIME and TIMESTAMP are ISO text, a TIMESTAMP in UTC with a final `Z`; TIME is
`[-]hh:mm:ss[.ffffff]`; text is text, ENUM and SET by their labels, JSON as its document's text; bytes are base64. A
date that no calendar has stays as the server writes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pidts.model import DataChange, SchemaEvent


def event_line(event: DataChange | SchemaEvent, source: str) -> str:
    """One event, without a line end."""
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
        images = {"old": _image(event.old_data), "new": _image(event.new_data)}
    return json.dumps({**head, **what, **tail, **images, "is_retry": event.is_retry}, ensure_ascii=False)


def _image(image: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if image is None else {name: json_value(value) for name, value in image.items()}


def json_value(value: Any) -> Any:
    """One value in the form above."""
    match value:
        case datetime():
            text = value.replace(tzinfo=None).isoformat()
            return text if value.tzinfo is None else f"{text}Z"
        case date():
            return value.isoformat()
        case timedelta():
            return _clock(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode("ascii")
    return value


def _clock(value: timedelta) -> str:
    us = abs(value) // timedelta(microseconds=1)
    seconds, us = divmod(us, 1_000_000)
    fraction = f".{us:06}" if us else ""
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
