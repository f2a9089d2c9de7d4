"""A task file is shown without its secrets; a file that is sent back gets them again."""

from __future__ import annotations

import pytest
import yaml

from pidts.model import ConfigError
from pidts.service.masked_file import masked, unmasked

FILE = """\
# the password is swordfish
name: shop  # plain
target-database: {host: h, user: app, password: "pw#1", database: shop}
mysql-instances:
  - source-id: a
    from: {host: b, password: 'it''s', port: 1}
  - source-id: b
    from:
      password: >-
        long
        one
      password-file: /run/secrets/b
  - {source-id: c, from: {password: "${PW}"}}
pidts:
  alerts: {webhook: "https://hooks.example/T0/secret-part"}
  spark: {master: "spark://jo:ann@host:7077", conf: {spark.hadoop.fs.s3a.secret.key: abc}}
"""
SECRETS = ("swordfish", "pw#1", "it''s", "long", "secret-part", "ann", "abc")


def test_no_secret_is_shown_and_all_else_is() -> None:
    shown = masked(FILE)
    assert [one for one in SECRETS if one in shown] == []
    for kept in ("name: shop  # plain", "/run/secrets/b", '"${PW}"', "user: app", "port: 1", "host: h"):
        assert kept in shown


def test_a_file_that_comes_back_has_its_secrets_again() -> None:
    file = FILE.replace("spark://jo:ann@host:7077", "local[2]").replace("# the password is swordfish\n", "")
    back = unmasked(masked(file).replace("host: h,", "host: other,"), file)
    assert back == file.replace("host: h,", "host: other,")


@pytest.mark.parametrize(
    "new", ['name: "***"', "mysql-instances: [{from: {password: '***'}}]", "url: mysql://***@host/"]
)
def test_a_secret_that_is_not_known_is_asked_for(new: str) -> None:
    with pytest.raises(ConfigError) as caught:
        unmasked(new, "name: shop\nurl: mysql://a:b@host/\n")
    assert caught.value.code == "masked-secret"


def test_a_secret_stays_with_its_source_when_the_list_changes() -> None:
    one, two = "{source-id: a, from: {password: pw-of-a}}", "{source-id: b, from: {password: pw-of-b}}"
    file = f"mysql-instances:\n  - {one}\n  - {two}\n"
    turned = f"mysql-instances:\n  - {two}\n  - {one}\n"
    assert unmasked(masked(turned), file) == turned
    assert unmasked(masked(f"mysql-instances:\n  - {two}\n"), file) == f"mysql-instances:\n  - {two}\n"
    with pytest.raises(ConfigError, match="line 2"):
        unmasked(f"mysql-instances:\n  - {masked(one).replace('source-id: a', 'source-id: c')}\n", file)


def test_a_secret_of_an_item_without_a_name_is_asked_for_when_the_list_changes() -> None:
    file = "list:\n  - {host: a, password: pw-of-a}\n  - {host: b, password: pw-of-b}\n"
    assert unmasked(masked(file), file) == file
    for new in ('list:\n  - {host: b, password: "***"}\n', 'list:\n  - {host: c, password: "***"}\n  - {host: b}\n'):
        with pytest.raises(ConfigError, match="line 2"):
            unmasked(new, file)


@pytest.mark.parametrize(
    "file",
    [
        'base: {password: &p "swordfish"}\nfrom: {password: *p}\n',
        "name: &p swordfish\nfrom: {password: *p}\n",
        "from: {password: &p !!str 0123}\nname: *p\n",
        "from:\n  password: &p >-\n    big\n    herring\nother: {password: *p}\n",
        "from: {password: swordfish}\nfrom: {password: other}\n",
    ],
)
def test_a_secret_with_an_anchor_is_masked_and_comes_back(file: str) -> None:
    shown = masked(file)
    assert [one for one in ("swordfish", "herring", "0123", "other}") if one in shown] == []
    assert yaml.safe_load(unmasked(shown, file)) == yaml.safe_load(file)


def test_one_mask_for_two_places_is_replaced_only_if_both_have_the_same_secret() -> None:
    shown = 'a: {password: &p "***"}\nb: {password: *p}\n'
    same = "a: {password: longsecret99}\nb: {password: longsecret99}\n"
    assert yaml.safe_load(unmasked(shown, same)) == yaml.safe_load(same)
    with pytest.raises(ConfigError, match="line 1"):
        unmasked(shown, same.replace("99}\nb", "98}\nb"))


@pytest.mark.parametrize("new", ['from: {password: "***", port: 1}\n', "from:\n      password: '***'\n      port: 1\n"])
@pytest.mark.parametrize(
    "secret", ["a,b", "'a: b'", '"it\'s #1"', "|\n    two\n    lines", "sword\n    fish", "'\u2028 \u00e4'"]
)
def test_a_secret_is_the_same_after_its_place_is_laid_out_anew(secret: str, new: str) -> None:
    file = f"from:\n  port: 1\n  password: {secret}\n"
    assert yaml.safe_load(unmasked(new, file)) == yaml.safe_load(file)


def test_the_command_of_alerts_and_keys_of_accounts_are_secrets() -> None:
    file = """\
pidts:
  alerts: {command: [curl, -H, "key swordfish"]}
  spark: {conf: {fs.azure.account.key.shop: swordfish}}
"""
    assert "swordfish" not in masked(file)
    assert unmasked(masked(file), file) == file


def test_a_file_that_is_no_yaml_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        masked("password: [swordfish")
    assert "swordfish" not in str(caught.value)
