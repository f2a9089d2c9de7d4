"""Reads one mapping of a task file key by key, so that no key is ignored silently.

The reader of a section asks for each key by its type, and then calls `finish`, which handles the other keys:

- A key of DM that has no effect in PiDTS passes. If the file's author may expect an effect, a note names the key.
- A key of DM is refused if ignoring its value would change which rows arrive.
- A key that neither DM nor PiDTS has is always refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from pidts.model import ConfigError, Where
from pidts.model.similar_names import suggestion
from pidts.task.config.mistakes import mistake
from pidts.task.config.yaml_lines import Item

_SAYS_NOTHING: tuple[object, ...] = ("", None, [], {})
_VARIABLE = re.compile(r"\$(\$?)\{([^}]*)\}")

LOCAL_URL = "file:///"
"""The prefix of a URL that means a path on this machine."""

IN_SERVICE = "PIDTS_IN_SERVICE"
"""An environment variable that a service sets for itself and its processes, which lack the user's environment."""


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A key of DM that PiDTS does not use."""

    as_is: tuple[object, ...]
    """Values that ask for what PiDTS does anyway. These and empty values (null, "", [], {}) pass without a note."""
    note: str = ""
    """The note about any other value. A value with a note passes."""
    refusal: str = ""
    """The reason why any other value is refused. Either `refusal` or `note` is set."""


@dataclass(frozen=True, slots=True)
class Document:
    """The file of a section, and the environment variables."""

    file: Path
    environ: Mapping[str, str] = field(repr=False)
    notes: list[str]
    roots: list[Section] = field(default_factory=list, repr=False)
    """The outermost section of each file that was read."""

    def error(self, line: int, code: str, what: str, todo: str = "") -> ConfigError:
        """Returns an error at one line of this file."""
        return ConfigError(code, what, where=Where(file=str(self.file), line=line), todo=todo)


@dataclass(slots=True)
class KeyUse:
    """The method and the arguments with which a key was read. The JSON Schema for editors is made from them."""

    kind: str = ""
    """The method of `Section` that has read the key; empty if the reader has only asked whether the key exists."""
    least: int | None = None
    most: int | None = None
    words: tuple[str, ...] = ()
    sections: list[Section] = field(default_factory=list)
    needed: bool = False


class Section:
    """A mapping of the task file; messages name it by its `path`, such as `pidts.spark`."""

    def __init__(self, item: Item, document: Document, path: str = "") -> None:
        if item.value is None:
            item = Item({}, item.line)
        if not isinstance(item.value, dict):
            raise document.error(
                item.line, "wrong-type", f"{path or 'the file'}: expected keys and values, not {_described(item)}"
            )
        self._items: dict[str, Item] = item.value
        self.asked: dict[str, KeyUse] = {}
        self.others: Mapping[str, OtherKey] = {}
        self.has_names = False
        """Whether the keys are names that the author chooses."""
        self.line = item.line
        self.path = path
        self.document = document

    def has(self, key: str) -> bool:
        """Whether the key is given and not null."""
        self._ask(key)
        return key in self._items and self._items[key].value is not None

    def is_mapping(self, key: str) -> bool:
        """Whether the value has keys of its own."""
        return self.has(key) and isinstance(self._items[key].value, dict)

    def is_empty(self, key: str) -> bool:
        """Whether the key is not given, or has an empty value: null, "", [] or {}."""
        return not self.has(key) or _plain(self._items[key]) in _SAYS_NOTHING

    @property
    def names(self) -> tuple[str, ...]:
        """All keys of a section whose keys are names that the author chooses."""
        self.has_names = True
        return tuple(self._items)

    def line_of(self, key: str) -> int:
        """Returns the line of the key, or of the section if it does not have the key."""
        return self._items[key].line if key in self._items else self.line

    def error(self, key: str, code: str, what: str, todo: str = "") -> ConfigError:
        """Returns an error about one key. If the key is missing, suggests a similar key of the file."""
        if code == "missing-key" and not todo:
            close = {
                word: f"Is it {word!r} in line {self.line_of(word)}?" for word in self._items.keys() - self.asked.keys()
            }
            todo = next((text for word, text in close.items() if suggestion(key, [word])), "")
        return self.document.error(self.line_of(key), code, f"{self._name(key)}: {what}", todo)

    def note(self, key: str, text: str) -> None:
        """Adds a note about a key that was accepted."""
        self.document.notes.append(f"{self.document.file.name}:{self.line_of(key)}: {self._name(key)}: {text}")

    def text(self, key: str, default: str | None = None) -> str:
        """Returns a word or number as written, with `${NAME}` replaced. Without a default, the key is required."""
        self._ask(key, "text").needed |= default is None
        if not self.has(key):
            if default is None:
                raise self.error(key, "missing-key", "this key has to be given")
            return default
        return self._expanded(key, self._items[key])

    def integer(self, key: str, default: int, *, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
        """Returns a whole number within limits."""
        asked = self._ask(key, "integer")
        asked.least, asked.most = minimum, maximum
        if not self.has(key):
            return default
        item = self._items[key]
        number = item.value
        if isinstance(number, str) and _VARIABLE.search(number):
            expanded = self._expanded(key, item)
            number = int(expanded) if expanded.isascii() and expanded.isdigit() else None
        if not isinstance(number, int) or isinstance(number, bool):
            mistake(self.error(key, "wrong-type", f"expected a whole number, not {_described(item)}"))
            return default
        if not minimum <= number <= maximum:
            limits = f"at least {minimum}" if number < minimum else f"at most {maximum}"
            mistake(self.error(key, "bad-value", f"expected {limits}, not {number}"))
            return default
        return number

    def flag(self, key: str, *, default: bool) -> bool:
        """Returns the value of a key that is true or false."""
        self._ask(key, "flag")
        if not self.has(key):
            return default
        item = self._items[key]
        if not isinstance(item.value, bool):
            mistake(self.error(key, "wrong-type", f"expected true or false, not {_described(item)}"))
            return default
        return item.value

    def choice(
        self,
        key: str,
        allowed: Iterable[str],
        default: str | None = None,
        later: Iterable[str] = (),
        hints: Mapping[str, str] | None = None,
    ) -> str:
        """Returns the value of a key, which has to be one of `allowed`.

        `later` are values that are not supported yet. `hints` say, for some other values, what to write instead. A key
        with hints decides how the rest of the section is read. So after a wrong value, the section is not read further.
        """
        word = self.text(key, default)
        self._ask(key, "choice").words = allowed = tuple(allowed)
        if word in allowed:
            return word
        if word in later:
            what = f"{word!r} is not supported yet"
            error = self.error(key, "not-supported", what, f"Use one of: {', '.join(allowed)}.")
        else:
            todo = (hints or {}).get(word.lower()) or suggestion(word, allowed)
            error = self.error(key, "bad-value", f"expected one of {', '.join(allowed)}, not {word!r}", todo)
        if hints is not None:
            raise error
        mistake(error)
        return default or allowed[0]

    def section(self, key: str) -> Section:
        """Returns a mapping inside this mapping; empty if it is not given."""
        item = self._items[key] if self.has(key) else Item({}, self.line)
        section = Section(item, self.document, self._name(key))
        self._ask(key, "section").sections.append(section)
        return section

    def required_section(self, key: str) -> Section:
        """Returns a mapping that is required."""
        self._ask(key).needed = True
        if not self.has(key):
            raise self.error(key, "missing-key", "this key has to be given")
        return self.section(key)

    def sections(self, key: str) -> list[Section]:
        """Returns a list of mappings."""
        found = [Section(item, self.document, f"{self._name(key)}[{at}]") for at, item in enumerate(self._list(key))]
        self._ask(key, "sections").sections += found
        return found

    def texts(self, key: str) -> list[tuple[str, int]]:
        """Returns a list of words without replacing `${NAME}`, each with its line."""
        self._ask(key, "texts")
        for at, item in enumerate(self._list(key)):
            if isinstance(item.value, dict | list) or item.value is None:
                what = f"{self._name(key)}[{at}]: expected text, not {_described(item)}"
                raise self.document.error(item.line, "wrong-type", what)
        return [(item.text, item.line) for item in self._list(key)]

    def literal(self, key: str, default: str | None = None) -> str:
        """Returns a text in which `$` has no special meaning, such as a pattern."""
        self._ask(key, "text").needed |= default is None
        if not self.has(key):
            if default is None:
                raise self.error(key, "missing-key", "this key has to be given")
            return default
        return self._scalar(key, self._items[key])

    @contextmanager
    def with_place(self, key: str, line: int | None = None) -> Iterator[None]:
        """Adds the key's file and line to an error that the block raises without a line."""
        try:
            yield
        except ConfigError as error:
            if error.where.line:
                raise
            what = f"{self._name(key)}: {error.what}"
            raise self.document.error(line or self.line_of(key), error.code, what, error.todo) from None

    def file(self, key: str, default: str | None = None) -> Path:
        """Returns a path, which may be written as `file:///path`. A relative path begins at the folder of this file."""
        text = self.text(key, default)
        if text.startswith(LOCAL_URL):
            text = unquote(text.removeprefix("file://"))
        try:
            return self.document.file.absolute().parent / Path(text).expanduser()
        except RuntimeError:
            raise self.error(key, "bad-value", f"there is no home folder for {text.partition('/')[0]}") from None

    def finish(self, others: Mapping[str, OtherKey] | None = None) -> None:
        """Reports the keys for which the reader has not asked, as mistakes or as notes."""
        others = self.others = others or {}
        for key, item in self._items.items():
            if key in self.asked:
                continue
            if key not in others:
                what = f"{key!r} is not a key of {self.path or 'a task file'}"
                mistake(self.document.error(item.line, "unknown-key", what, suggestion(key, [*self.asked, *others])))
                continue
            other = others[key]
            value = _plain(item)
            if value in _SAYS_NOTHING or any(value == same and type(value) is type(same) for same in other.as_is):
                continue
            if other.refusal:
                what = f"PiDTS does not support this value of the DM setting: {other.refusal}"
                mistake(self.error(key, "not-supported", what, "Remove it, or set it to its default."))
            else:
                self.note(key, other.note)

    def _ask(self, key: str, kind: str = "") -> KeyUse:
        asked = self.asked.setdefault(key, KeyUse())
        asked.kind = kind if kind == "choice" else asked.kind or kind
        return asked

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _list(self, key: str) -> list[Item]:
        if not self.has(key):
            return []
        item = self._items[key]
        if not isinstance(item.value, list):
            raise self.error(key, "wrong-type", f"expected a list, not {_described(item)}")
        return item.value

    def _scalar(self, key: str, item: Item) -> str:
        if isinstance(item.value, dict | list):
            raise self.error(key, "wrong-type", f"expected text, not {_described(item)}")
        return item.text

    def _expanded(self, key: str, item: Item) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1]:
                return found[0][1:]
            name, environ = found[2], self.document.environ
            if name in environ:
                return environ[name]
            if IN_SERVICE in environ:
                what = f"the environment variable {name} is not set where the service (pidts serve) was started"
                todo = (
                    f"Set {name} there (under systemd, in an EnvironmentFile= of its unit), and start the service "
                    "again: its tasks go on meanwhile. A password may be in a file instead: password-file"
                )
                raise self.error(key, "missing-variable", what, todo)
            what = f"the environment variable {name} is not set"
            raise self.error(key, "missing-variable", what, f"export {name}=...")

        return _VARIABLE.sub(value, self._scalar(key, item))


def in_order(notes: Iterable[str]) -> tuple[str, ...]:
    """Returns the notes by file and line, each of them once."""
    alone = list(dict.fromkeys(notes))
    places = {note: note.split(":", 2) for note in alone}
    files = list(dict.fromkeys(place[0] for place in places.values()))
    return tuple(sorted(alone, key=lambda note: (files.index(places[note][0]), int(places[note][1]))))


def _described(item: Item) -> str:
    """Returns the kind of a value. The value itself may be a secret under a wrong key, so no message shows it."""
    kinds: list[tuple[type, str]] = [
        (dict, "keys and values"),
        (list, "a list"),
        (bool, "true or false"),
        (int, "a whole number"),
    ]
    for kind, name in [*kinds, (float, "a number"), (str, "text"), (type(None), "nothing")]:
        if isinstance(item.value, kind):
            return name
    return f"a {type(item.value).__name__}"


def _plain(item: Item) -> object:
    if isinstance(item.value, dict):
        return {key: _plain(child) for key, child in item.value.items()}
    return [_plain(child) for child in item.value] if isinstance(item.value, list) else item.value
