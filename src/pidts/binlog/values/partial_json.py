"""Reads PARTIAL_UPDATE events, in which an after image contains only the changes to a JSON document.

Options precede each after image. With the option for partial JSON, a bit follows for every JSON column of the table,
even for columns that the image lacks. If a column's bit is set, its value is a list of changes to the document in the
before image of the same row. A change replaces, inserts or removes a value at a path such as `$.a[3]."a key"`.
"""

from __future__ import annotations

import json as standard
import re
from collections.abc import Mapping, Sequence

from pidts.binlog.cursor import Cursor, text
from pidts.binlog.values import json
from pidts.binlog.values.image import ImageColumn
from pidts.binlog.wire import Wire, WireType
from pidts.model.advice import RESYNC
from pidts.model.errors import DecodeError, Halted, Where
from pidts.model.table import TableName

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_DIFFS = 1
_LENGTH = 4
_LEG = re.compile(r'\[(?:(\d+)|last(?:\s*-\s*(\d+))?)\]|\.(?:("(?:[^"\\]|\\.)*")|([^.\["]+))')

Documents = Mapping[int, int]
"""The size of the length field of each JSON column of a table, by the column's index."""
Leg = str | int
"""A step of a path: a key, or an index of an array; a negative index counts from the array's end."""


def documents(wires: Sequence[Wire]) -> Documents:
    """Returns the columns with JSON documents, and the size of each one's length field."""
    return {place: wire.size for place, wire in enumerate(wires) if wire.type is WireType.JSON}


def before_image(
    data: bytes, at: int, present: Sequence[ImageColumn], columns: Documents
) -> tuple[dict[int, bytes], int]:
    """Appends a before image's values to the columns; returns its JSON documents as bytes, and the place after it."""
    nulls, at = _nulls(data, at, len(present))
    found = {}
    for column in present:
        if nulls & column.bit:
            column.append(None)
            continue
        end = column.read(data, at)
        if column.place in columns:
            found[column.place] = data[at + columns[column.place] : end]
        at = end
    return found, at


def after_image(
    table: TableName, data: bytes, at: int, present: Sequence[ImageColumn], columns: Documents, old: Mapping[int, bytes]
) -> int:
    """Appends an after image's values, with whole documents in place of changes; returns the place after the image."""
    changed, at = _changed(data, at, columns)
    nulls, at = _nulls(data, at, len(present))
    for column in present:
        if nulls & column.bit:
            column.append(None)
        elif column.place not in changed:
            at = column.read(data, at)
        else:
            start = at + _LENGTH
            at = start + int.from_bytes(data[at:start], "little")
            if at > len(data):
                return at
            if column.place not in old:
                raise Halted(
                    "partial-json-without-before",
                    "the log contains only the changes to a JSON document, and the row's before image lacks it",
                    where=Where(table=str(table)),
                    todo="Run SET GLOBAL binlog_row_image=FULL (or binlog_row_value_options='') on the source, let its "
                    f"sessions reconnect, then copy the table again: {RESYNC}",
                )
            column.append(rebuilt(old[column.place], data[start:at]).encode())
    return at


def rebuilt(document: bytes, diffs: bytes) -> str:
    """Returns the text of a document after its changes."""
    root = json.tree(document)
    cursor = Cursor(diffs, "a change of a JSON document")
    while cursor.left:
        operation = cursor.uint(1)
        path = legs(text(cursor.take(cursor.packed()), cursor.what))
        value = None if operation == _REMOVE else json.tree(cursor.take(cursor.packed()))
        root = _changed_tree(root, operation, path, value)
    return json.render(root)


def legs(path: str) -> list[Leg]:
    """Returns the steps of a path."""
    found: list[Leg] = []
    at = 1
    while at < len(path):
        match = _LEG.match(path, at)
        if match is None:
            break
        index, from_end, quoted, plain = match.groups()
        if quoted or plain:
            found.append(standard.loads(quoted) if quoted else plain)
        else:
            found.append(int(index) if index else -1 - int(from_end or 0))
        at = match.end()
    if at != len(path) or not path.startswith("$"):
        raise DecodeError("bad-json", f"{path!r} is not a path into a JSON document")
    return found


def _changed_tree(root: json.Node, operation: int, path: list[Leg], value: json.Node | None) -> json.Node:
    parents: list[json.Node] = []
    taken: list[Leg] = []
    node: json.Node | None = root
    for leg in path:
        if not isinstance(node, json.Array) and leg in {0, -1} and node is not None:
            continue  # A value that is not an array counts as an array of one.
        if node is None:
            raise _misfit(operation, path)
        parents.append(node)
        taken.append(leg)
        node = _child(node, leg)
    if not parents:
        if operation != _REPLACE or value is None:
            raise _misfit(operation, path)
        return value
    parent, last = parents[-1], taken[-1]
    if (node is None) == (operation == _INSERT) or isinstance(parent, json.Array):
        if isinstance(parent, json.Object) and isinstance(last, str):
            parent.change(last, value)
            return root
        if isinstance(parent, json.Array) and isinstance(last, int):
            if operation == _INSERT and value is not None:
                parent.insert(last, value)
                return root
            if node is not None:
                parent[last : last + 1 or None] = [] if value is None else [value]
                return root
    raise _misfit(operation, path)


def _child(node: json.Node, leg: Leg) -> json.Node | None:
    if isinstance(node, json.Array) and isinstance(leg, int):
        return node[leg] if -len(node) <= leg < len(node) else None
    return node.get(leg) if isinstance(node, json.Object) and isinstance(leg, str) else None


def _misfit(operation: int, path: Sequence[Leg]) -> DecodeError:
    return DecodeError("bad-json", f"change {operation} at {path} does not fit its JSON document")


def _changed(data: bytes, at: int, columns: Documents) -> tuple[frozenset[int], int]:
    """Returns the JSON columns whose new values are written as changes, and the place after the options and bits."""
    cursor = Cursor(data[at : at + 9], "the options of an after image")
    options = cursor.packed()
    if options & ~_DIFFS:
        raise DecodeError("unknown-event", f"an after image has options {options:#x}, which are not known")
    at += cursor.at
    if not options:
        return frozenset(), at
    size = (len(columns) + 7) // 8
    bits = int.from_bytes(data[at : at + size], "little")
    return frozenset(place for number, place in enumerate(columns) if bits >> number & 1), at + size


def _nulls(data: bytes, at: int, count: int) -> tuple[int, int]:
    stop = at + (count + 7) // 8
    return int.from_bytes(data[at:stop], "little"), stop
