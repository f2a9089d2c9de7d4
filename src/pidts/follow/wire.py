"""The messages between a relay server and its followers. Each answer has one body, which is checked as a whole.

A body is a length, a JSON object (see `LogResponse.encode`), the events and the index records of one piece. The object
contains the sizes and a CRC32 of the events and of the index records. It also contains the replicator's state and the
places of the stored structures, so that a follower gets both at least once a second.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from pidts.model import Halted, Lsn, PidtsError, Transient, Where
from pidts.relay.copy_writer import IndexPrefix, SegmentPiece

API: Final = "/relay/v1"
"""The prefix of all paths; another version of the protocol gets another prefix."""
MOST_BYTES: Final = 96 << 20
"""The largest body. A follower reads no more than this, since another program may have sent the answer."""
_LENGTH = struct.Struct("<I")
_MOST_ABOUT = 1 << 20
_KINDS: Final[Mapping[str, type[PidtsError]]] = {"halted": Halted, "transient": Transient}


@dataclass(frozen=True, slots=True)
class LogResponse:
    """The answer of a relay server to a follower's request for more log."""

    piece: SegmentPiece | None
    """The piece of the relay after the copy's end; None if there is no more log yet."""
    state: Mapping[str, Any]
    """Fields of the replicator's status, the reason if it receives nothing, and the cuts of the relay so far."""
    structures: tuple[Lsn, ...]
    """The places of the stored structures."""
    servers: str
    """The addresses from which the log came."""

    def encode(self) -> bytes:
        """Returns the body of the answer."""
        about: dict[str, Any] = {
            "state": dict(self.state),
            "structures": [str(lsn) for lsn in self.structures],
            "servers": self.servers,
        }
        log = index = b""
        if (piece := self.piece) is not None:
            log, index = piece.log, piece.index
            about["piece"] = {
                "segment": piece.segment,
                "log_at": piece.log_at,
                "log": len(log),
                "index_at": piece.index_at,
                "index": len(index),
                "crc": crc32(index, crc32(log)),
            }
        text = json.dumps(about).encode()
        return b"".join((_LENGTH.pack(len(text)), text, log, index))

    @classmethod
    def decode(cls, body: bytes) -> LogResponse:
        """Reads a body; raises ValueError if the bytes are not an answer, or were damaged on the way."""
        if len(body) < _LENGTH.size:
            raise ValueError("the answer is empty")
        (length,) = _LENGTH.unpack_from(body)
        begin = _LENGTH.size + length
        if length > _MOST_ABOUT or begin > len(body):
            raise ValueError("this is not the answer of a relay server")
        about = json.loads(body[_LENGTH.size : begin])
        try:
            lsns = tuple(map(Lsn.parse, about["structures"]))
            return cls(_piece(about.get("piece"), body, begin), dict(about["state"]), lsns, str(about["servers"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the answer lacks {error}") from None


def _piece(about: Mapping[str, int] | None, body: bytes, begin: int) -> SegmentPiece | None:
    if about is None:
        return None
    middle = begin + about["log"]
    log, index = body[begin:middle], body[middle:]
    if (len(log), len(index)) != (about["log"], about["index"]) or crc32(index, crc32(log)) != about["crc"]:
        raise ValueError("the answer was damaged on the way")
    return SegmentPiece(about["segment"], about["log_at"], log, about["index_at"], index)


def encode_prefix(has: IndexPrefix) -> dict[str, int | str]:
    """Returns the parameters of a request: they say how much of a segment the copy has."""
    return {
        "segment": has.segment,
        "log": has.log_bytes,
        "index": has.index_bytes,
        "crc": has.index_crc,
        "lsn": str(has.lsn),
    }


def decode_prefix(parameters: Mapping[str, str]) -> IndexPrefix:
    """Reads the parameters that `encode_prefix` returns; raises ValueError or KeyError if they are wrong."""
    segment, log, index, crc = (int(parameters[name]) for name in ("segment", "log", "index", "crc"))
    if min(segment, log, index, crc) < 0 or max(segment, log, index, crc) >= 1 << 62:
        raise ValueError("a number is out of range")
    return IndexPrefix(segment, log, index, crc, Lsn.parse(parameters["lsn"]))


def encode_error(error: PidtsError) -> dict[str, Any]:
    """Returns an error as JSON. The JSON also says whether another attempt may help."""
    return {"kind": "transient" if isinstance(error, Transient) else "halted", **error.to_json()}


def decode_error(about: Any) -> PidtsError:
    """Reads an error from the JSON that `encode_error` returns; raises ValueError if the JSON is not an error."""
    try:
        where = {name: value for name, value in dict(about["where"]).items() if name in Where.__slots__}
        kind = _KINDS[about["kind"]]
        return kind(str(about["code"]), str(about["what"]), where=Where(**where), todo=str(about["todo"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the answer is not an error of a relay server: {error}") from None
