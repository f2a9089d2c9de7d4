"""What went wrong in a TLS handshake, in words that say which side to mend."""

from __future__ import annotations

import ssl

from pidts.model import PrecheckFailed, Where
from pidts.model.errors import NOWHERE

_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The line was cut, nothing was refused."""
_HOST_DIFFERS = frozenset({62, 64})
"""OpenSSL's numbers: the certificate is not for this host name, not for this address."""


def refused(error: BaseException, who: str, where: Where = NOWHERE) -> PrecheckFailed | None:
    """The refusal behind a driver's error; None where TLS has nothing to do with it, or trying again may help."""
    found = _cause(error)
    if found is None or isinstance(found, _CUT):
        return None
    if isinstance(found, ssl.SSLCertVerificationError):
        if found.verify_code in _HOST_DIFFERS:
            return other_host(who, found.verify_message, where)
        return not_trusted(who, found.verify_message, where)
    what = f"the TLS handshake with {who} failed: {found.reason or found}"
    todo = (
        "Does the server ask for a certificate of ours (ssl-cert, ssl-key), or know only TLS versions that are no "
        "longer allowed? Its error log may say more"
    )
    return PrecheckFailed("tls-failed", what, where=where, todo=todo)


def not_trusted(who: str, said: str, where: Where = NOWHERE) -> PrecheckFailed:
    """A certificate of nobody that we know, or one that has run out."""
    todo = (
        "Set ssl-ca to the authority that signed it; if it has expired, the server needs a new one. Or does somebody "
        "else answer at this address?"
    )
    return PrecheckFailed("tls-certificate", f"the certificate of {who} is not trusted: {said}", where=where, todo=todo)


def other_host(who: str, said: str, where: Where = NOWHERE) -> PrecheckFailed:
    """A good certificate, for somebody else."""
    what = f"the certificate of {who} is made out to another host: {said}"
    todo = "Connect by a name that is in the certificate, or use ssl-mode: verify_ca if you trust all of its authority"
    return PrecheckFailed("tls-host", what, where=where, todo=todo)


def not_offered(who: str, where: Where = NOWHERE) -> PrecheckFailed:
    """A server without TLS where it is demanded."""
    todo = (
        "Give the server a certificate (ssl_cert, ssl_key in its configuration), or allow a plain connection with "
        "ssl-mode: preferred"
    )
    return PrecheckFailed("tls-not-offered", f"{who} offers no TLS", where=where, todo=todo)


def _cause(error: BaseException) -> ssl.SSLError | None:
    """Drivers wrap it: once, twice, or as an attribute."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, ssl.SSLError):
            return one
        seen.add(id(one))
        left += [one.__cause__, one.__context__, getattr(one, "original_exception", None)]
    return None
