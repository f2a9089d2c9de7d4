"""How much encryption a connection asks for, in the words that MySQL's own clients use."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pidts.model import ConfigError, Where


class Mode(StrEnum):
    """Each asks for all that the one before it does."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    """Encrypted, unless the server has no TLS at all. A handshake that fails is never answered by going on in plain."""
    REQUIRED = "required"
    VERIFY_CA = "verify_ca"
    """The server's certificate has to come from an authority that we trust."""
    VERIFY_IDENTITY = "verify_identity"
    """It also has to be made out to the host that we connect to."""

    @property
    def is_demanded(self) -> bool:
        """Whether a plain connection is refused."""
        return self not in {Mode.DISABLED, Mode.PREFERRED}

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is looked at."""
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
    """What one connection asks for; picklable, the files are read at the connecting."""

    mode: Mode = Mode.PREFERRED
    ca: str | None = None
    """File with the authorities to trust; the system's own where it is None."""
    cert: str | None = None
    """File with the certificate that we show."""
    key: str | None = None

    @classmethod
    def of(cls, mode: str = "", ca: str = "", cert: str = "", key: str = "") -> Tls:
        """From words, empty ones not given; raises ValueError where they contradict each other.

        Without a mode, an authority means that it is asked for, as with MySQL's clients and with DM, and a certificate
        of ours that there has to be somebody to show it to.
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
            raise ValueError(f"ssl-mode {chosen} does not look at ssl-ca: choose verify_ca or verify_identity")
        if cert and not chosen.is_demanded:
            raise ValueError(f"ssl-mode {chosen} may show no certificate: leave ssl-cert out, or choose required")
        return cls(chosen, ca or None, cert or None, key or None)

    def context(self) -> ssl.SSLContext | None:
        """What a socket is wrapped with; None where it stays plain."""
        if self.mode is Mode.DISABLED:
            return None
        self.check_files()
        try:
            context = ssl.create_default_context(cafile=self.ca)
            # Certificates that MySQL makes for itself lack extensions that newer Pythons ask for.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.mode is Mode.VERIFY_IDENTITY
            context.verify_mode = ssl.CERT_REQUIRED if self.mode.verifies else ssl.CERT_NONE
            if self.cert is not None:
                # A key with a passphrase would make the library ask for it on the terminal.
                context.load_cert_chain(self.cert, self.key, password=b"")
        except (ssl.SSLError, OSError, ValueError) as error:
            files = ", ".join(filter(None, (self.ca, self.cert, self.key)))
            todo = "Certificates and keys are PEM files, the key without a passphrase, and key and certificate a pair"
            raise ConfigError("tls-files", f"cannot be used for TLS: {files} ({error})", todo=todo) from error
        return context

    def check_files(self) -> None:
        """Raise for a file that cannot be read."""
        for path in filter(None, (self.ca, self.cert, self.key)):
            try:
                with Path(path).open("rb"):
                    pass
            except OSError as error:
                what = f"a file for TLS cannot be read: {error.strerror}"
                todo = "Look at path, owner and mode"
                raise ConfigError("tls-files", what, where=Where(file=path), todo=todo) from None

    def mysql(self) -> dict[str, Any]:
        """As options of a MySQL connection; without any, the driver does what `preferred` means."""
        if self.mode is Mode.PREFERRED:
            return {}
        context = self.context()
        return {"ssl_disabled": True} if context is None else {"ssl": context}

    def postgres(self) -> dict[str, Any]:
        """The same for PostgreSQL."""
        self.check_files()
        options = {"sslmode": _POSTGRES[self.mode]}
        if self.mode.verifies:
            options["sslrootcert"] = self.ca or "system"
        if self.cert is not None:
            options |= {"sslcert": self.cert, "sslkey": self.key or self.cert}
        return options
