"""The output of SHOW GRANTS is understood, and the GRANT statements that are printed have the intended effect."""

from __future__ import annotations

import pytest

from pidts.login.privileges import Privilege, account_name, account_of, current_grants, grant_statements, privileges_of
from pidts.model import PrecheckFailed

SELECT = Privilege("SELECT", "shop_1", "orders")


@pytest.mark.parametrize(
    ("grant", "has"),
    [
        ("GRANT SELECT ON *.* TO `u`@`%`", True),
        ("GRANT ALL PRIVILEGES ON *.* TO 'u'@'%' IDENTIFIED BY PASSWORD '*AB' WITH GRANT OPTION", True),
        ("GRANT INSERT, SELECT, UPDATE ON `shop\\_1`.* TO `u`@`%`", True),
        ("GRANT SELECT ON `shop_1`.* TO `u`@`%`", True),
        ("GRANT SELECT ON `sho_\\_1`.* TO `u`@`%`", True),
        ("GRANT SELECT ON `%`.* TO `u`@`%`", True),
        ("GRANT SELECT ON `shop\\_1`.`orders` TO `u`@`%`", False),
        ("GRANT SELECT ON `shop_1`.`orders` TO `u`@`%`", True),
        ("GRANT SELECT ON `SHOP_1`.`Orders` TO `u`@`%`", True),
        ("GRANT SELECT ON `shopX1`.`orders` TO `u`@`%`", False),
        ("GRANT SELECT ON `shop_1`.`other` TO `u`@`%`", False),
        ("GRANT SELECT (`a`, `b`) ON `shop_1`.`orders` TO `u`@`%`", False),
        ("GRANT SELECT (a), UPDATE ON `shop_1`.`orders` TO `u`@`%`", False),
        ("GRANT SHOW VIEW ON `shop_1`.* TO `u`@`%`", False),
        ("GRANT EXECUTE ON PROCEDURE `shop_1`.`orders` TO `u`@`%`", False),
        ("GRANT `SELECT`@`%` TO `u`@`%`", False),
        ("GRANT PROXY ON ''@'' TO 'root'@'localhost' WITH GRANT OPTION", False),
        ("GRANT USAGE ON *.* TO `u`@`%`", False),
    ],
)
def test_a_grant_covers_what_its_server_lets_pass(grant: str, has: bool) -> None:
    assert privileges_of([grant]).has(SELECT) is has


def test_revoked_privileges_are_not_counted() -> None:
    lines = ["GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `secret`.* FROM `u`@`%`"]
    assert privileges_of(lines).has(SELECT)
    assert not privileges_of(lines).has(Privilege("SELECT", "secret"))


def test_a_privilege_under_its_other_name_is_the_same() -> None:
    assert privileges_of(["GRANT BINLOG MONITOR ON *.* TO `u`@`%`"]).has(Privilege("REPLICATION CLIENT"))
    assert not privileges_of(["GRANT BINLOG MONITOR ON *.* TO `u`@`%`"]).has(Privilege("REPLICATION SLAVE"))


def test_on_a_schema_more_is_needed_than_on_its_tables() -> None:
    one = privileges_of(["GRANT SELECT ON `shop_1`.`orders` TO `u`@`%`"])
    assert not one.has(Privilege("SELECT", "shop_1"))
    assert not privileges_of(["GRANT REPLICATION SLAVE ON `shop`.* TO u"]).has(Privilege("REPLICATION SLAVE"))


def test_granted_privileges_are_recognized() -> None:
    odd = ["plain", "a_b", "per%cent", "back`tick", "back\\slash", "spa ce", "it's", "ünï"]
    wanted = [Privilege("SELECT", schema, table) for schema in odd for table in ("", *odd)] + [Privilege("FILE")]
    lines = [sql.removesuffix(";") + " " for sql in grant_statements(wanted, "`u`@`%`")]
    for number, one in enumerate(wanted):
        assert privileges_of(lines).has(one), one
        others = [line for line in lines if f"ON {one.place} TO" not in line]
        assert len(others) == len(lines) - 1
        assert privileges_of([]).has(one) is False, number


def test_one_statement_for_each_place_in_the_order_of_the_first() -> None:
    wanted = [Privilege("A"), Privilege("B", "s"), Privilege("C"), Privilege("B", "s"), Privilege("A", "s")]
    assert list(grant_statements(wanted, "u")) == ["GRANT A, C ON *.* TO u;", "GRANT B, A ON `s`.* TO u;"]


def test_an_account_is_quoted_for_a_grant() -> None:
    assert account_name("o'b\\r", "10.%") == "'o''b\\\\r'@'10.%'"


@pytest.mark.parametrize(("hosts", "host"), [([], "%"), (["10.0.0.%"], "10.0.0.%"), (["a", "b"], "%")])
def test_the_only_account_of_a_name_is_meant(hosts: list[str], host: str) -> None:
    assert account_of(lambda _: [(each.encode(),) for each in hosts], "u") == f"'u'@'{host}'"


@pytest.mark.parametrize(
    ("server", "host"), [("127.0.0.1", "localhost"), ("localhost", "localhost"), ("db.example", "%"), ("", "%")]
)
def test_if_the_server_is_local_the_account_of_this_machine_is_used(server: str, host: str) -> None:
    assert account_of(lambda _: [("%",), ("localhost",)], "u", server) == f"'u'@'{host}'"


def test_without_the_privilege_to_read_accounts_any_host_is_assumed() -> None:
    def refuse(_: str) -> list[tuple[object, ...]]:
        raise PrecheckFailed("missing-privilege", "SELECT command denied")

    assert account_of(refuse, "u") == "'u'@'%'"


def test_roles_are_named_where_the_server_wants_it() -> None:
    said: list[str] = []

    def ask(sql: str) -> list[tuple[object, ...]]:
        said.append(sql)
        return [("`r`@`%`",)] if "ROLE" in sql else [(b"GRANT SELECT ON *.* TO u",)]

    assert current_grants(ask, names_roles=True) == ["GRANT SELECT ON *.* TO u"]
    assert said[-1] == "SHOW GRANTS FOR CURRENT_USER() USING `r`@`%`"
    current_grants(ask, names_roles=False)
    assert said[-1] == "SHOW GRANTS"
