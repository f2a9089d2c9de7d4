"""`pidts serve`: starts and watches tasks, and serves a page and a REST interface for them."""

from __future__ import annotations

import os
import ssl
import stat
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from pidts.bounded_file import read_small
from pidts.cli.command import Debug
from pidts.cli.errors import remember_service
from pidts.cli.log_options import set_up_logs
from pidts.cli.signals import run_until_stopped
from pidts.model import ConfigError, Where

USUAL_ADDRESS = "127.0.0.1:8390"
_SHORTEST_TOKEN = 16

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="The folder of the service's tasks. Without it: pidts in $XDG_STATE_HOME or ~/.local/state.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with the secret that each request must have; no other user may read it.",
        show_default=False,
    ),
]


def serve(
    listen: Annotated[
        str,
        typer.Option(metavar="[HOST:]PORT", help="Where to listen. Without a host, only this machine can connect."),
    ] = USUAL_ADDRESS,
    state: State = None,
    token_file: TokenFile = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="The certificate (PEM) for https.", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert (PEM).", show_default=False)
    ] = None,
    insecure_http: Annotated[
        bool,
        typer.Option(
            "--insecure-http",
            help="Let other machines connect without https: anybody on the network can read the token.",
        ),
    ] = False,
    debug: Debug = False,
) -> int:
    """Start and watch tasks, each a process of its own, and serve a page and a REST interface for them."""
    set_up_logs(debug=debug)
    remember_service(state)
    from pidts.follow.loopback import is_loopback
    from pidts.service.durable_file import write_json
    from pidts.service.spawned import Spawner
    from pidts.service.state_folder import StateFolder, usual_state_folder
    from pidts.service.supervisor import Supervisor
    from pidts.task.config.section import IN_SERVICE
    from pidts.web.access import Policy
    from pidts.web.server import ServiceEndpoint, listening_socket, parsed_address
    from pidts.web.server import serve as serve_requests

    host, port = parsed_address(listen)
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("usage", "--tls-cert and --tls-key belong together", todo="See: pidts serve --help")
    if not is_loopback(host):
        _demand_safe(host, has_tls=tls_cert is not None, has_token=token_file is not None, insecure=insecure_http)
    if tls_cert is not None and tls_key is not None:
        _demand_certificate(tls_cert, tls_key)
    token = read_token(token_file) if token_file is not None else ""
    place = ServiceEndpoint(host, port, str(tls_cert or ""), str(tls_key or ""))
    policy = Policy(host, token, uses_tls=tls_cert is not None)
    folder = StateFolder((state or usual_state_folder()).absolute())
    folder.prepare()
    os.environ[IN_SERVICE] = "1"

    def work(stop: threading.Event) -> None:
        with folder.sole_service(), closing(listening_socket(place)) as listener:
            spawner = Spawner()
            supervisor = Supervisor(folder, spawner)

            def ready(url: str) -> None:
                known = {
                    "url": url_here(url),
                    "process": os.getpid(),
                    "certificate": str(tls_cert.absolute()) if tls_cert else "",
                }
                known["token_file"] = str(token_file.absolute()) if token_file is not None else ""
                write_json(folder.service, known, durable=False)
                print(f"serving at {url}, state in {folder.path}", file=sys.stderr, flush=True)

            supervisor.begin()
            try:
                serve_requests(supervisor, listener, place, policy, stop, ready)
            finally:
                supervisor.end()
                spawner.close()

    run_until_stopped(work, says="the service ends; its tasks go on")
    return 0


def url_here(url: str) -> str:
    """Returns the URL at which programs on this machine reach the service, even if it listens at all addresses."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _demand_certificate(certificate: Path, key: Path) -> None:
    """Raises if the certificate and its key cannot be used."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(
            "serve-certificate",
            f"the certificate and its key cannot be used: {error.strerror or error}",
            where=Where(file=str(certificate)),
            todo=f"Give PEM files that belong together, and a key without a password: {certificate}, {key}",
        ) from None


def _demand_safe(host: str, *, has_tls: bool, has_token: bool, insecure: bool) -> None:
    if not has_token:
        raise ConfigError(
            "unsafe-address",
            f"{host} can be reached from other machines, and no token is asked for",
            todo="Add --token-file FILE, or listen at 127.0.0.1",
        )
    if not has_tls and not insecure:
        raise ConfigError(
            "unsafe-address",
            f"{host} can be reached from other machines, and tokens would travel unencrypted",
            todo="Add --tls-cert FILE --tls-key FILE, or --insecure-http if a proxy in front of the service encrypts",
        )


def read_token(path: Path) -> str:
    """Returns the secret in a token file. Raises if other users may read it."""
    where = Where(file=str(path))
    try:
        mode = path.stat()
        token = read_small(path, 4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            "token-file", f"the token file cannot be read: {why}", where=where, todo="Check its path, owner and mode"
        ) from None
    if stat.S_IMODE(mode.st_mode) & 0o077:
        what = "users other than its owner may read or change the token file"
        raise ConfigError("token-file", what, where=where, todo=f"Run chmod 600 {path}, and put a new token into it")
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        what = f"a token has at least {_SHORTEST_TOKEN} printable ASCII characters without spaces, in one line"
        todo = f"Create such a token: (umask 077; openssl rand -hex 32 > {path})"
        raise ConfigError("token-file", what, where=where, todo=todo)
    return token
