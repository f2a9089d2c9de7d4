"""Finds the user of this machine at the other end of a loopback connection.

The kernel lists each socket with its user. After a program has closed a socket, the kernel may still list it, with user
0 and without an inode. Such a socket must not count as root's. Otherwise every user could act as root, by closing a
socket directly after the request.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Returns the id of the user whose socket is at `client`; None if no socket is found."""
    forms = {(_form(client[0], client[1], six=six), _form(server[0], server[1], six=six)) for six in (False, True)}
    for table in _TABLES:
        try:
            lines = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if (words[1], words[2]) in forms and words[9] != "0":
                return int(words[7])
    return None


def _form(host: str, port: int, *, six: bool) -> str:
    """Returns an address as the kernel's table for IPv4 shows it, or with `six` the table for IPv6.

    Returns an empty text for an IPv6 address without `six`, since the table for IPv4 cannot have it.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if isinstance(address, ipaddress.IPv4Address):
        if not six:
            return f"{_words(address.packed)}:{port:04X}"
        packed = socket.inet_pton(socket.AF_INET6, f"::ffff:{address}")
    elif six:
        packed = address.packed
    else:
        return ""
    return f"{_words(packed)}:{port:04X}"


def _words(packed: bytes) -> str:
    """Returns each four bytes as a hexadecimal number in the byte order of this machine, as the kernel does."""
    order = "<" if sys.byteorder == "little" else ">"
    return "".join(f"{number:08X}" for (number,) in struct.iter_unpack(f"{order}I", packed))
