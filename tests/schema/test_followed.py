"""After each statement, PiDTS's structure equals the one in the server's catalog: for a corpus and for random
statements.

A statement that the server refuses is left out. A statement that it accepts and PiDTS does not understand is a failure.
`PIDTS_STATEMENTS=20000` runs this number of random statements on each server, with another seed each time. `PIDTS_SEED`
runs one seed again.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.schema.following import Following, statements
from tests.schema.generated import Generator

from pidts.sandbox import Server

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.sql"))
IN_CI = 100
SEED = 20


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_is_followed(mysql_like: Server, database: str, path: Path) -> None:
    following = Following.on(mysql_like, database)
    texts = list(statements(path.read_text("utf-8")))
    try:
        for sql in texts:
            following.run(sql)
    finally:
        following.session.close()
    assert following.wrong == [], "\n" + "\n".join(following.wrong)
    assert following.ran > len(texts) / 2


@pytest.mark.timeout(3600 if "PIDTS_STATEMENTS" in os.environ else 300)
def test_generated_statements_are_followed(mysql_like: Server, database: str) -> None:
    count = int(os.environ.get("PIDTS_STATEMENTS", IN_CI))
    seed = int(os.environ.get("PIDTS_SEED", SEED if count == IN_CI else random.randrange(10**9)))
    following = Following.on(mysql_like, database)
    generator = Generator(seed, database, mariadb=following.dialect.mariadb)
    try:
        for _ in range(count):
            following.run(generator.statement(following.tables))
    finally:
        following.session.close()
    assert following.wrong == [], f"\nPIDTS_SEED={seed}\n" + "\n".join(following.wrong)
    assert following.ran > count / 3
