"""Logs in to database servers: TLS, login methods, and the privileges of the account."""

from pidts.login.failures import (
    not_offered,
    not_trusted,
    number_and_text,
    other_host,
    out_of_order,
    refused,
    seen_host,
    unusable_account,
    without_password,
)
from pidts.login.tls import Mode, Tls
