"""The token that a follower sends to a relay server: one line of a file that no other user of the machine can read.

The server accepts the token of every line. So a new token can be added before the old one is removed. A follower sends
the first token of its file.
"""

from __future__ import annotations

import hmac
import stat
from collections.abc import Sequence
from pathlib import Path

from pidts.bounded_file import read_small
from pidts.model import ConfigError, Where

_LEAST = 16
_MOST_BYTES = 64 << 10


def read_tokens(path: Path) -> tuple[str, ...]:
    """Returns the tokens of a file. Refuses a file that others can read, and tokens that can be guessed."""
    where = Where(file=str(path))
    try:
        mode = path.stat().st_mode
        lines = read_small(path, _MOST_BYTES).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        todo = f"Write a random text into the file: (umask 077; openssl rand -hex 32 > '{path}')"
        raise ConfigError("relay-token", f"the token file cannot be read: {reason}", where=where, todo=todo) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        what = "other users of this machine can read or change the token file"
        raise ConfigError("relay-token", what, where=where, todo=f"Run: chmod 600 '{path}'")
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens or any(len(one) < _LEAST or not one.isascii() or not one.isprintable() for one in tokens):
        what = f"each line of a token file is one token, of at least {_LEAST} printable ASCII characters"
        raise ConfigError("relay-token", what, where=where, todo=f"Run: (umask 077; openssl rand -hex 32 > '{path}')")
    return tokens


def is_accepted(shown: str, tokens: Sequence[str]) -> bool:
    """Whether `shown` is one of the tokens. The call's duration does not show how many characters are right."""
    found = False
    for token in tokens:
        found |= hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), token.encode())
    return found
