"""Random histories of tables with unusual keys on a real source, and runs that carry them to a real target.

A table has a key of one column or two, of any type that a key can have, or no key, and up to two further unique keys.
Statements insert, replace, update and delete rows, give rows other keys or another spelling of their key, and move
unique values from row to row. After each transaction, the source's rows are read. After each batch, the target must
have these rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from tests.binlog.logs.round_trip import RoundTrip
from tests.values_target.rows import plain

from pidts.apply import ApplyRules, Committer, Target, TargetSession
from pidts.batch.applying import apply, apply_long
from pidts.batch.blobs import Blob
from pidts.batch.context import watched_by
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit
from pidts.binlog import decode_slice
from pidts.model import ChangeBatch, Checkpoint, Lsn, Table, TableName
from pidts.reduce import buckets, with_whole_keys
from pidts.reduce.buckets import TWO_WORKERS

TEXTS = ("''", "'a'", "'A'", "'a '", "'b'", "'é'", "'e'", "'ß'", "'ss'", "'a\\t'")
BYTES = ("x''", "x'00'", "x'0000'", "x'61'", "x'6100'", "x'41'", "x'6120'", "x'ff'")
KEYS: dict[str, tuple[str, ...]] = {
    "INT": ("0", "1", "2", "-1", "2147483647"),
    "BIGINT UNSIGNED": ("0", "1", "18446744073709551615", "9223372036854775808"),
    "TINYINT(1)": ("0", "1", "-128", "127"),
    "MEDIUMINT": ("0", "-8388608", "8388607", "5"),
    "DECIMAL(10,2)": ("0", "1.5", "1.50", "-0.01", "100", "99999999.99"),
    "DECIMAL(40,20)": ("0", "0.00000000000000000001", "1", "-1.10"),
    "FLOAT": ("0", "-0e0", "0.1", "1.5", "1e10", "16777216"),
    "DOUBLE": ("0", "-0e0", "0.1", "1.5", "1e300", "9007199254740993"),
    "DATE": ("'2001-02-03'", "'2001-02-04'", "'1000-01-01'", "'9999-12-31'"),
    "DATETIME": ("'2001-02-03 04:05:06'", "'2001-02-03 04:05:07'", "'1000-01-01'"),
    "DATETIME(6)": ("'2001-02-03 04:05:06.000001'", "'2001-02-03 04:05:06'", "'9999-12-31 23:59:59.999999'"),
    "TIMESTAMP(3)": ("'2001-02-03 04:05:06.001'", "'2001-02-03 04:05:06'", "'2030-01-01'"),
    "TIME(2)": ("'-00:00:00.01'", "'0'", "'838:59:59'", "'-838:59:59'", "'12:34:56.78'"),
    "YEAR": ("1901", "2000", "2155"),
    "BIT(5)": ("0", "1", "31"),
    "ENUM('a','B','c')": ("'a'", "'B'", "'c'"),
    "SET('x','Y')": ("''", "'x'", "'x,Y'", "'Y'"),
    "BINARY(3)": BYTES,
    "VARBINARY(6)": BYTES,
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci": TEXTS,
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": TEXTS,
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": TEXTS,
    "CHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci": TEXTS,
    "CHAR(5) CHARACTER SET latin1 COLLATE latin1_bin": TEXTS,
    "VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci": TEXTS,
    "VARCHAR(9) CHARACTER SET ucs2 COLLATE ucs2_general_ci": TEXTS,
    "VARCHAR(9) CHARACTER SET ascii COLLATE ascii_bin": ("''", "'a'", "'A'", "'a '", "'b'"),
}
OF_MYSQL = {
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci": TEXTS,
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin": TEXTS,
    "CHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs": TEXTS,
}
OF_MARIADB = {
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_nopad_ci": TEXTS,
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin": TEXTS,
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'123e4567-e89b-12d3-a456-426614174000'"),
    "INET6": ("'::'", "'::1'", "'1.2.3.4'"),
}
OTHERS = frozenset("ntbj")
"""The columns that no key has."""
JSON_TEXTS = ('{"a": 1, "b": [1, 2, "x"]}', '{"a": "text", "c": {"d": null}}', '[1, {"a": 2}]', "{}")
JSON_CHANGES = (
    "JSON_SET(j, '$.a', n)",
    "JSON_SET(j, '$.a', t, '$.b', n)",
    "JSON_REPLACE(j, '$.a', n, '$.b[1]', 'y')",
    "JSON_REMOVE(j, '$.b[0]')",
    "JSON_REMOVE(j, '$.a', '$.c')",
    "JSON_SET(j, '$[1].a', REPEAT('w', n))",
)


def many(its: str) -> str:
    """Returns an expression that makes a different value of this type for most numbers `seq`."""
    word = its.partition("(")[0].split()[0]
    forms = {
        "DECIMAL": "seq / 100",
        "FLOAT": "seq / 8",
        "DOUBLE": "seq / 10",
        "DATE": "'2001-01-01' + INTERVAL seq DAY",
        "DATETIME": "'2001-01-01' + INTERVAL seq SECOND",
        "TIMESTAMP": "'2001-01-01' + INTERVAL seq SECOND",
        "TIME": "SEC_TO_TIME(seq - 700)",
        "YEAR": "1901 + seq % 250",
        "TINYINT": "seq % 120",
        "BIT": "seq % 32",
        "ENUM": "1 + seq % 3",
        "SET": "seq % 4",
        "BINARY": "UNHEX(LPAD(HEX(seq), 6, '0'))",
        "VARBINARY": "UNHEX(LPAD(HEX(seq), 6, '0'))",
        "VARCHAR": "CONCAT(ELT(1 + seq % 3, 'a', 'É', 'B'), seq)",
        "CHAR": "CONCAT(ELT(1 + seq % 3, 'a', 'É', 'B'), seq)",
        "UUID": "CONCAT('00000000-0000-0000-0000-', LPAD(seq, 12, '0'))",
        "INET6": "CONCAT('::', HEX(seq))",
    }
    return forms.get(word, "seq")


def key_types(kind: str) -> dict[str, tuple[str, ...]]:
    """Returns the types of keys that a kind of server has, each with literals."""
    return {**KEYS, **(OF_MYSQL if kind == "mysql97" else OF_MARIADB if kind == "mariadb" else {})}


@dataclass
class RandomKeys:
    """A random table: its statement, the literals of its columns, and the statements that change it."""

    chance: random.Random
    kind: str
    has_json: bool = False

    def __post_init__(self) -> None:
        chance, types = self.chance, key_types(self.kind)
        self.shape = chance.choice(["one", "one", "two", "two", "unique", "none"])
        names = ["k", "l"] if self.shape == "two" else ["k"]
        self.columns: dict[str, str] = {name: chance.choice(list(types)) for name in names}
        self.values: dict[str, Sequence[str]] = {name: types[its] for name, its in self.columns.items()}
        self.keys = {"one": ["PRIMARY KEY (k)"], "two": ["PRIMARY KEY (k, l)"], "unique": ["UNIQUE KEY kk (k)"]}.get(
            self.shape, []
        )
        if self.shape == "two" and chance.random() < 0.3:
            self.keys = ["PRIMARY KEY (l, k)"]
        unnamed = "" if self.shape == "none" else " NOT NULL"
        self.definitions = [f"{name} {its}{unnamed}" for name, its in self.columns.items()]
        for number in range(chance.randrange(3)):
            name = f"u{number}"
            its = chance.choice(list(types))
            self.columns[name] = its
            self.values[name] = (*types[its], "NULL", "NULL")
            self.definitions.append(f"{name} {its} NULL")
            key, is_text = name, "CHAR" in its
            if is_text and chance.random() < 0.3:
                key = f"{name}(1)"
            elif chance.random() < 0.3:
                key = f"{name}, {chance.choice([one for one in self.columns if one != name])}"
            self.keys.append(f"UNIQUE KEY q{number} ({key})")
        if chance.random() < 0.3:
            # MINIMAL logs of MariaDB lack virtual columns of new rows.
            kept = "STORED" if self.kind == "mariadb" else chance.choice(["VIRTUAL", "STORED"])
            self.definitions.append(f"g INT AS (n + 1) {kept}")
            if chance.random() < 0.5 and self.shape != "none":
                self.keys.append("UNIQUE KEY qg (g, k)")
            self.is_generated = True
        else:
            self.is_generated = False
        self.definitions += ["n INT DEFAULT 5", "t TEXT", "b BLOB", *(["j JSON"] if self.has_json else [])]
        chance.shuffle(self.definitions)
        if self.is_generated and self.kind == "mysql56":
            self.definitions = [one for one in self.definitions if not one.startswith("g ")]
            self.keys = [one for one in self.keys if "(g" not in one]
        self.columns |= {"n": "INT", "t": "TEXT", "b": "BLOB"}
        numbers = tuple(map(str, range(40)))
        if self.has_json:
            self.columns["j"] = "JSON"
            self.values["j"] = ("NULL", *(f"'{text}'" for text in JSON_TEXTS))
        self.values |= {"n": numbers, "t": ("NULL", "'t'", "REPEAT('u', 30)"), "b": ("NULL", "x'00ff'", "''")}

    def statement(self, name: str) -> str:
        return f"CREATE TABLE {name} ({', '.join([*self.definitions, *self.keys])}) CHARACTER SET utf8mb4"

    def value(self, column: str) -> str:
        return self.chance.choice(self.values[column])

    def condition(self) -> str:
        chance = self.chance
        column = chance.choice([one for one in self.columns if one not in OTHERS - {"n"}])
        value = self.value(column)
        return chance.choice(
            [f"{column} = {value}", f"{column} = {value}", f"{column} <= {value}", f"n % 3 = {chance.randrange(3)}"]
        )

    def change(self, name: str) -> str:
        """Returns a random statement; a server may refuse it."""
        chance = self.chance
        some = chance.sample(list(self.columns), chance.randrange(1, len(self.columns) + 1))
        every = [*self.columns]
        listed = every if chance.random() < 0.7 else list(dict.fromkeys([*self.columns][:2] + some))
        rows = ", ".join(
            f"({', '.join(self.value(column) for column in listed)})" for _ in range(chance.randrange(1, 4))
        )
        # MariaDB logs a REPLACE with MINIMAL images as an UPDATE without the columns that get their defaults.
        replace = "REPLACE" if self.kind != "mariadb" or listed == every else "INSERT IGNORE"
        into = f"INTO {name} ({', '.join(listed)}) VALUES {rows}"
        keyed = [one for one in self.columns if one not in OTHERS]
        one = chance.choice(keyed)
        first, second = self.value(one), self.value(one)
        sets = ", ".join(f"{column} = {self.value(column)}" for column in some[:2])
        order = f"ORDER BY {chance.choice(keyed)} {chance.choice(['', 'DESC'])} LIMIT {chance.randrange(1, 4)}"
        swap = f"CASE WHEN {one} = {first} THEN {second} WHEN {one} = {second} THEN {first} ELSE {one} END"
        if self.has_json and chance.random() < 0.2:
            return f"UPDATE {name} SET j = {chance.choice(JSON_CHANGES)} WHERE {self.condition()}"
        return chance.choice(
            [
                f"INSERT IGNORE {into}",
                f"INSERT IGNORE {into}",
                f"INSERT IGNORE {into}",
                f"{replace} {into}",
                f"INSERT {into} ON DUPLICATE KEY UPDATE {sets}",
                f"UPDATE IGNORE {name} SET {sets} WHERE {self.condition()} {order}",
                f"UPDATE IGNORE {name} SET {sets} {order}",
                f"UPDATE {name} SET {one} = {first} WHERE {one} = {second} {order}",
                f"UPDATE {name} SET n = n + 1 WHERE {self.condition()}",
                f"UPDATE {name} SET {one} = {swap}",
                f"UPDATE {name} SET {one} = {one}, t = {self.value('t')} WHERE {self.condition()}",
                f"DELETE FROM {name} WHERE {self.condition()} {order}",
                f"DELETE FROM {name} {order}",
            ]
        )

    def bulk(self, name: str) -> list[str]:
        """Returns a statement that concerns hundreds of rows."""
        chance, least, count = self.chance, self.chance.randrange(600), self.chance.randrange(65, 700)
        if chance.random() < 0.5:
            listed = [one for one in self.columns if one not in OTHERS]
            values = [self.bulk_value(one, least) for one in listed]
            digits = "SELECT 0 AS d" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 10))
            numbers = (
                f"SELECT {least} + a.d + 10 * b.d + 100 * c.d AS seq FROM ({digits}) a, ({digits}) b, ({digits}) c"
            )
            text = chance.choice(["NULL", "REPEAT(seq, 3)"])
            into, chosen = ", ".join([*listed, "n", "t"]), ", ".join([*values, "seq", text])
            rows = f"SELECT {chosen} FROM ({numbers}) s ORDER BY seq LIMIT {count}"
            return [f"INSERT IGNORE INTO {name} ({into}) {rows}"]
        keyed = chance.choice([one for one in self.columns if one not in OTHERS])
        order = f"ORDER BY {keyed}, n LIMIT {count}"
        if self.shape == "none" and count > 100:
            order = f"ORDER BY {keyed}, n, t LIMIT 100"
        return chance.choice(
            [
                [f"UPDATE {name} SET n = n + 1, t = n {order}"],
                [f"DELETE FROM {name} {order}"],
                [f"UPDATE IGNORE {name} SET {keyed} = {self.value(keyed)} {order}"],
                [f"UPDATE {name} SET t = 'x', n = n % 7 WHERE n % 2 = 0"],
                [f"DELETE FROM {name} WHERE n % 3 = {chance.randrange(3)} {order}"],
            ]
        )

    def bulk_value(self, column: str, least: int) -> str:
        made = many(self.columns[column])
        return made if column in "kl" or self.chance.random() < 0.6 else "NULL"

    def swap(self, name: str) -> list[str]:
        """Returns statements that let two rows exchange a value by way of a third value."""
        chance = self.chance
        column = chance.choice([one for one in self.columns if one not in OTHERS])
        first, second, third = (self.value(column) for _ in range(3))
        pairs = (first, third), (second, first), (third, second)
        return [f"UPDATE {name} SET {column} = {new} WHERE {column} = {old} LIMIT 1" for old, new in pairs]


class ServerHistory:
    """The log of transactions on a server, and the tables' rows after each of them."""

    def __init__(self, trip: RoundTrip, there: TargetSession, chance: random.Random, kind: str, tables: int) -> None:
        self.trip, self.chance = trip, chance
        trip.run("FLUSH LOGS")
        trip.begin()
        self.drawn = {f"{trip.schema}.t{number}": RandomKeys(chance, kind) for number in range(tables)}
        self.is_large = chance.random() < 0.2
        for name, drawn in self.drawn.items():
            trip.run(drawn.statement(name))
        self.structures = trip.structures()
        self.first = trip.end()
        self.ends: list[int] = []
        self.states: list[dict[TableName, list[str]]] = []
        self.there = there
        self.statements: list[str] = []

    def play(self, transactions: int, images: Sequence[str]) -> None:
        """Runs random transactions, each with one of these row images."""
        for _ in range(transactions):
            self._try(f"SET SESSION binlog_row_image = {self.chance.choice(images)}")
            self._transaction()
            end = self.trip.end()
            assert end.file == self.first.file
            if end.offset == (self.ends[-1] if self.ends else self.first.offset):
                continue
            self.ends.append(end.offset)
            self.states.append({name: content(self.there, table) for name, table in self.structures.items()})
        self.log, self.format, _ = self.trip.log_since(self.first)

    def _transaction(self) -> None:
        chance = self.chance
        self._try("BEGIN")
        for _ in range(chance.randrange(1, 7)):
            name = chance.choice(list(self.drawn))
            if self.is_large and chance.random() < 0.25:
                for statement in self.drawn[name].bulk(name):
                    self._try(statement)
                continue
            if chance.random() < 0.15:
                for statement in self.drawn[name].swap(name):
                    self._try(statement)
                continue
            is_saved = chance.random() < 0.1
            if is_saved:
                self._try("SAVEPOINT s")
            self._try(self.drawn[name].change(name))
            if is_saved and chance.random() < 0.5:
                self._try("ROLLBACK TO SAVEPOINT s")
        self._try("COMMIT")

    def _try(self, statement: str) -> None:
        with suppress(AssertionError):
            self.trip.run(statement)
            self.statements.append(statement)

    def end(self, number: int) -> Lsn:
        """Returns the Lsn at which a transaction ends."""
        return Lsn(0, self._index, self.ends[number])

    @property
    def begin(self) -> Lsn:
        """Returns the Lsn at which the first transaction begins."""
        return Lsn(0, self._index, self.first.offset)

    @property
    def _index(self) -> int:
        return int(self.first.file.rpartition(".")[2])

    def decoded(self, first: int, last: int, slices: int) -> Iterator[list[ChangeBatch]]:
        """Returns transactions `first` to `last` in slices."""
        count = max(1, -(-(last - first) // slices))
        for begin in range(first, last, count):
            low = self.ends[begin - 1] if begin else self.first.offset
            high = self.ends[min(begin + count, last) - 1]
            yield decode_slice(
                self.log[low - self.first.offset : high - self.first.offset],
                format=self.format,
                log_file=self.first.file,
                change_no=0,
                structures=self.structures,
                offset=low,
            )


def content(session: TargetSession, table: Table) -> list[str]:
    """Returns a table's rows as sorted texts, in which 0.0 and -0.0 are equal."""
    rows = session.read_rows(table)
    columns = [column.combine_chunks().view(plain(column.type)).to_pylist() for column in rows.columns]
    return sorted(
        repr([value + 0.0 if isinstance(value, float) else value for value in row])
        for row in zip(*columns, strict=True)
    )


class ServerRun:
    """A task that carries a history to a target."""

    def __init__(
        self,
        history: ServerHistory,
        target: Target,
        chance: random.Random,
        workers: int,
        rules: ApplyRules,
        *,
        is_long: bool,
        split: int | None,
        known: Mapping[TableName, Table],
    ) -> None:
        self.history, self.target, self.chance, self.workers = history, target, chance, workers
        self.rules, self.is_long, self.split, self.known = rules, is_long, split, known

    def carry(self) -> None:
        """Applies the whole log in random batches, and compares the tables after each batch."""
        history, count = self.history, len(self.history.ends)
        first = Checkpoint(task=self.rules.task, source="s", worker=0, lsn=history.begin)
        with closing(self.target.connect()) as session:
            checkpoints = session.meta.checkpoints.claim(self.rules.task, "s", self.workers, first)
            watched = watched_by(session, self.known.values(), self.workers)
            begin = 0
            with Committer(self.target, self.rules.task, "s", checkpoints[0].epoch, rules=self.rules) as committer:
                while begin < count:
                    end = min(count, begin + self.chance.randrange(1, 8))
                    moved = [replace(c, lsn=history.end(end - 1), batch=c.batch + 1) for c in checkpoints]
                    blobs = self._blobs(begin, end, watched)
                    for worker in self.chance.sample(range(self.workers), self.workers):
                        self._apply(committer, Commit(tuple(checkpoints), tuple(moved)), worker, blobs[worker])
                    begin, checkpoints = end, moved
                    for name, table in self.known.items():
                        assert content(session, table) == history.states[end - 1][name], name

    def _blobs(self, begin: int, end: int, watched: Mapping[TableName, tuple[str, ...]]) -> list[list[Blob]]:
        blobs: list[list[Blob]] = [[] for _ in range(self.workers)]
        for number, batches in enumerate(self.history.decoded(begin, end, self.chance.randrange(1, 4))):
            for place, decoded in enumerate(batches):
                batch = with_whole_keys(replace(decoded, table=self.known[decoded.table.name]))
                parts = buckets(batch, self.workers, watched.get(batch.table.name, ()), TWO_WORKERS)
                for worker, part in enumerate(parts):
                    if part is not None:
                        order = Blob.first_order(number) + place
                        blobs[worker].append(Blob.unpack(worker, order, Blob(worker, order, part).pack()))
        return blobs

    def _apply(self, committer: Committer, commit: Commit, worker: int, blobs: list[Blob]) -> None:
        if not self.is_long:
            apply(committer, commit, worker, blobs)
            return
        slices = sorted({blob.slice for blob in blobs})
        inside = None if self.split is None else Lsn(0, 1, 4)
        log_parts = [LogPart([blob.changes for blob in blobs if blob.slice == one], inside) for one in slices]
        apply_long(committer, commit, worker, lambda: log_parts, self.split)
