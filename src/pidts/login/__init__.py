"""Being let in by a database server: how much encryption is asked of it, and how a password is proved to it."""

from pidts.login.failures import not_offered, not_trusted, other_host, refused
from pidts.login.tls import Mode, Tls

__all__ = ["Mode", "Tls", "not_offered", "not_trusted", "other_host", "refused"]
