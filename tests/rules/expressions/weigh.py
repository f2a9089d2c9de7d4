"""Writes the files of `pidts.rules.expressions.weights` from answers of servers: `python
tests/rules/expressions/weigh.py`.

It starts a MariaDB and a MySQL. It looks for contractions among the sequences in a file of Unicode's collation
(allkeys.txt), which is given as an argument.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pymysql

from pidts import sandbox
from pidts.rules.expressions import weights
from pidts.rules.expressions.weights import IMPLICIT, ITSELF, POINTS, UNKNOWN

COLLATIONS = {
    "mysql": (
        "utf8mb4_general_ci",
        "utf8mb4_unicode_ci",
        "utf8mb4_unicode_520_ci",
        "utf8mb4_0900_ai_ci",
        "latin1_swedish_ci",
        "gbk_chinese_ci",
    ),
    "mariadb": ("utf8mb4_uca1400_ai_ci",),
}
LETTERS = {"utf8mb4_general_ci": "old", "utf8mb4_0900_ai_ci": "0900", "utf8mb4_uca1400_ai_ci": "uca1400"}
FOLDER = Path(weights.__file__).parent


def weights_of(cursor, collation):
    """Returns the weights of each code point, in two bytes each."""
    cursor.execute("CREATE DATABASE IF NOT EXISTS weigh")
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS weigh.signs (p INT PRIMARY KEY, s VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)"
    )
    cursor.execute("SELECT COUNT(*) FROM weigh.signs")
    if cursor.fetchone()[0] == 0:
        points = [point for point in range(POINTS) if not 0xD800 <= point < 0xE000]
        for at in range(0, len(points), 20000):
            rows = [(point, chr(point)) for point in points[at : at + 20000]]
            cursor.executemany("INSERT INTO weigh.signs VALUES (%s, %s)", rows)
    charset = collation.partition("_")[0]
    sign = f"CONVERT(s USING {charset})"
    cursor.execute(
        f"SELECT p, WEIGHT_STRING({sign} COLLATE {collation}) FROM weigh.signs WHERE CONVERT({sign} USING utf8mb4) = s"
    )
    return {point: b"\0" + key if len(key) == 1 else key for point, key in cursor.fetchall()}


def contractions(cursor, collation, weights, sequences):
    found = {}
    for text in sequences:
        cursor.execute(f"SELECT WEIGHT_STRING(%s COLLATE {collation})", (text,))
        key = cursor.fetchone()[0]
        if key != b"".join(weights[ord(sign)] for sign in text):
            found[text] = key.hex()
    return found


def write(name, weights, found):
    counts, keys = np.full(POINTS, UNKNOWN, np.uint8), []
    for point, key in weights.items():
        implicit = {_implicit(base, point): code for base, code in IMPLICIT.items()}
        if key in implicit:
            counts[point] = implicit[key]
        elif point < 0x10000 and key == point.to_bytes(2, "big"):
            counts[point] = ITSELF
        else:
            counts[point] = len(key) // 2
            keys.append(key)
    data = counts.tobytes() + b"".join(keys) + json.dumps(found).encode() * bool(found)
    (FOLDER / f"{name}.weights").write_bytes(zlib.compress(data, 9))


def write_letters(letters):
    (FOLDER / "letters.weights").write_bytes(zlib.compress(json.dumps(letters).encode(), 9))


def _implicit(base, point):
    return (base + (point >> 15)).to_bytes(2, "big") + (point & 0x7FFF | 0x8000).to_bytes(2, "big")


def sequences_of(path):
    for line in Path(path).read_text("utf-8").splitlines():
        points = [] if line[:1] in "#@" else [int(word, 16) for word in line.split(";")[0].split()]
        if len(points) > 1:
            yield "".join(map(chr, points))


def letters_by(cursor, collation):
    """Returns the letters that LOWER and UPPER change. MySQL 9 loses text if a letter becomes longer by a byte."""
    found = {}
    for case in ("lower", "upper"):
        changed = f"{case}(s COLLATE {collation})"
        cursor.execute(
            f"SELECT p, CAST({changed} AS CHAR CHARACTER SET utf8mb4) FROM weigh.signs"
            f" WHERE {changed} COLLATE utf8mb4_bin <> s OR LENGTH({changed}) <> LENGTH(s)"
        )
        found[case] = letters_of(dict(cursor.fetchall()))
    return found


def letters_of(changed):
    known = {point: to for point, to in sorted(changed.items()) if len(to) == 1}
    lost = "".join(chr(point) for point in sorted(changed) if point not in known)
    return {"from": "".join(map(chr, known)), "to": "".join(known.values()), "lost": lost}


def main():
    letters = {}
    sequences = list(sequences_of(sys.argv[1]))
    for server, names in ((sandbox.start_mysql97, COLLATIONS["mysql"]), (sandbox.start_mariadb, COLLATIONS["mariadb"])):
        with (
            server() as started,
            pymysql.connect(
                host=started.host, port=started.port, user=started.user, password=started.password, autocommit=True
            ).cursor() as cursor,
        ):
            for name in names:
                reported = weights_of(cursor, name)
                found = (
                    {}
                    if not name.startswith("utf8") or "general" in name
                    else contractions(cursor, name, reported, sequences)
                )
                write(name.removeprefix("utf8mb4_"), reported, found)
                if name in LETTERS:
                    letters[LETTERS[name]] = letters_by(cursor, name)
    write_letters(letters)


if __name__ == "__main__":
    main()
