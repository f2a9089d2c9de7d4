"""The TLS settings of a connection, with the names that MySQL's own clients use."""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pidts.model import ConfigError, Where


class Mode(StrEnum):
    """The modes of TLS. Each mode also requires everything that the previous mode requires."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    """The connection is encrypted if the server supports TLS. A failed handshake never leads to a plain connection."""
    REQUIRED = "required"
    VERIFY_CA = "verify_ca"
    """The server's certificate must be signed by a trusted authority."""
    VERIFY_IDENTITY = "verify_identity"
    """The certificate must also name the host of the connection."""

    @property
    def is_demanded(self) -> bool:
        """Whether a plain connection is refused."""
        return self not in {Mode.DISABLED, Mode.PREFERRED}

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is verified."""
        return self in {Mode.VERIFY_CA, Mode.VERIFY_IDENTITY}


_POSTGRES = {
    Mode.DISABLED: "disable",
    Mode.PREFERRED: "prefer",
    Mode.REQUIRED: "require",
    Mode.VERIFY_CA: "verify-ca",
    Mode.VERIFY_IDENTITY: "verify-full",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of one connection, which can be pickled: their files are read when a connection is made."""

    mode: Mode = Mode.PREFERRED
    ca: str | None = None
    """The file with the trusted certificate authorities; None means the system's authorities."""
    cert: str | None = None
    """The file with the client certificate; None: the client shows no certificate."""
    key: str | None = None

    @classmethod
    def of(cls, mode: str = "", ca: str = "", cert: str = "", key: str = "") -> Tls:
        """Parses the settings. Empty settings count as missing. Raises ValueError if settings contradict each other.

        If no mode is given, the other settings decide, as with MySQL's clients and DM. With `ca`, the server's
        certificate is verified. With `cert`, TLS is required.
        """
        word = mode.lower().replace("-", "_")
        if word not in set(Mode):
            if word:
                raise ValueError(f"ssl-mode is one of {', '.join(Mode)}, not {mode!r}")
            word = Mode.VERIFY_CA if ca else Mode.REQUIRED if cert else Mode.PREFERRED
        chosen = Mode(word)
        if key and not cert:
            raise ValueError("ssl-key is given without ssl-cert")
        if ca and not chosen.verifies:
            raise ValueError(f"ssl-mode {chosen} does not use ssl-ca: choose verify_ca or verify_identity")
        if cert and not chosen.is_demanded:
            raise ValueError(
                f"with ssl-mode {chosen} the connection may be unencrypted, and then ssl-cert is not sent: remove "
                "ssl-cert, or set ssl-mode to required"
            )
        return cls(chosen, ca or None, cert or None, key or None)

    def context(self) -> ssl.SSLContext | None:
        """Returns the context for a socket; None for a plain connection."""
        if self.mode is Mode.DISABLED:
            return None
        self.check_files()
        try:
            context = ssl.create_default_context(cafile=self.ca)
            # Certificates that MySQL creates itself lack extensions that newer Pythons require.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.mode is Mode.VERIFY_IDENTITY
            context.verify_mode = ssl.CERT_REQUIRED if self.mode.verifies else ssl.CERT_NONE
            if self.cert is not None:
                # With the empty password, a key that needs a passphrase is an error. Without any password, the library
                # would ask for the passphrase on the terminal.
                context.load_cert_chain(self.cert, self.key, password=b"")
        except (ssl.SSLError, OSError, ValueError) as error:
            files = ", ".join(filter(None, (self.ca, self.cert, self.key)))
            todo = "Certificate and key are PEM files that belong together; the key has no passphrase"
            raise ConfigError(
                "tls-files", f"these files cannot be used for TLS: {files} ({error})", todo=todo
            ) from error
        return context

    def check_files(self) -> None:
        """Raises an error for a file that cannot be read."""
        for path in filter(None, (self.ca, self.cert, self.key)):
            try:
                with Path(path).open("rb") as file:
                    is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            except OSError as error:
                what = f"a file for TLS cannot be read: {error.strerror}"
                todo = "Check its path, owner and mode"
                raise ConfigError("tls-files", what, where=Where(file=path), todo=todo) from None
            if not is_regular:  # OpenSSL reads a file to its end, and a device may have no end
                raise ConfigError(
                    "tls-files", "a file for TLS is not a regular file", where=Where(file=path), todo="Name a PEM file"
                )

    def mysql(self) -> dict[str, Any]:
        """Returns the options of a MySQL connection. None are needed for `preferred`, the driver's default."""
        if self.mode is Mode.PREFERRED:
            return {}
        context = self.context()
        return {"ssl_disabled": True} if context is None else {"ssl": context}

    def postgres(self) -> dict[str, Any]:
        """Returns the options of a PostgreSQL connection."""
        self.check_files()
        options = {"sslmode": _POSTGRES[self.mode]}
        if self.mode.verifies:
            options["sslrootcert"] = self.ca or "system"
        if self.cert is not None:
            options |= {"sslcert": self.cert, "sslkey": self.key or self.cert}
        return options
