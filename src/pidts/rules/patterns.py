r"""Matches names of schemas and tables as DM's rules do: by wildcards, or by a regular expression.

A pattern is a name in which `*` (only as the last character) matches any text, `?` one character, and `[a-z]` or
`[!a-z]` one character of a set. After `~`, a pattern is a regular expression that may match anywhere in the name.

If case does not matter, DM's own code converts an expression's text to lower case, which turns `~\D` (not a digit) into
its opposite. PiDTS does not repeat this fault.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from pidts.model import ConfigError


def matches(pattern: str, name: str, *, case_sensitive: bool) -> bool:
    """Whether the pattern matches this name."""
    return _compiled(pattern, case_sensitive).search(name) is not None


def is_wide(pattern: str) -> bool:
    """Whether the pattern may match several names."""
    return pattern.startswith("~") or any(letter in pattern for letter in "*?[")


def check(pattern: str) -> None:
    """Raises for an invalid pattern. So the mistake is found when the task file is read, and not at the first match."""
    _compiled(pattern, True)  # noqa: FBT003 - part of the cache's key


@lru_cache(maxsize=4096)
def expression(text: str, *, case_sensitive: bool) -> re.Pattern[str]:
    """Compiles a regular expression of DM; raises if it would mean something else in Python."""
    flags = re.NOFLAG if case_sensitive else re.IGNORECASE
    try:
        with warnings.catch_warnings():
            # `[[:alpha:]]` is a class in DM's expressions. For Python it is another set, and Python only warns.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(text, flags)
    except (re.error, FutureWarning) as error:
        raise ConfigError("bad-pattern", f"the pattern {text!r} is not understood: {error}", todo=_todo(text)) from None


def _todo(text: str) -> str:
    """Returns the advice for an expression that Python refuses. It may have one of DM's classes or escapes."""
    if classes := sorted({found[0] for found in re.finditer(r"\[:\^?\w+:\]", text)}):
        return f"PiDTS has no {', '.join(classes)}: write the characters instead, for example [0-9] for [[:digit:]]"
    if escape := re.search(r"(?<!\\)(?:\\\\)*(\\[pPQEzC])", text):
        return f"PiDTS has no {escape[1]}: write the characters instead; the end of the name is $"
    return "The pattern is a regular expression: write a literal bracket as \\("


@lru_cache(maxsize=4096)
def _compiled(pattern: str, case_sensitive: bool) -> re.Pattern[str]:  # noqa: FBT001 - part of the cache's key
    text = pattern[1:] if pattern.startswith("~") else rf"\A(?s:{_wildcards(pattern)})\Z"
    return expression(text, case_sensitive=case_sensitive)


def _wildcards(pattern: str) -> str:
    if not pattern:
        raise ConfigError("bad-pattern", "an empty name matches nothing", todo="Write '*' to mean every name.")
    if "*" in _SET.sub("", pattern)[:-1]:
        raise ConfigError(
            "bad-pattern",
            f"'*' is only possible as the last character of a name, not in {pattern!r}",
            todo="Write a regular expression instead, e.g. '~^a.*z$'.",
        )
    parts = []
    at = 0
    for found in _SET.finditer(pattern):
        parts += [_plain(pattern[at : found.start()]), _set(found[0][1:-1])]
        at = found.end()
    return "".join([*parts, _plain(pattern[at:])])


_SET = re.compile(r"\[[^\]]+\]")
"""Matches a set. A `[` without a closing bracket is an ordinary character, and so is `[]`."""


def _plain(text: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text)


def _set(body: str) -> str:
    negated = body.startswith("!") and len(body) > 1
    return f"[{'^' if negated else ''}{''.join(char if char == '-' else re.escape(char) for char in body[negated:])}]"
