"""Which user of this machine is at the other end of a loopback connection.

The kernel lists each socket with its user. A socket whose program has closed it is listed with user 0 and no inode: it
must not count as root's, or whoever sends a request and closes the socket at once would pass for root.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def user_of(client: tuple[str, int], server: tuple[str, int], tables: Iterable[str] = _TABLES) -> int | None:
    """Returns the number of the user whose socket is at `client`; None if nobody's is found."""
    forms = {(_form(client[0], client[1], six=six), _form(server[0], server[1], six=six)) for six in (False, True)}
    for table in tables:
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
    """Returns an address as the kernel's tables write it; an IPv4 address has a form in the table of IPv6, too."""
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
    """Returns the bytes as the machine's own numbers of four bytes each."""
    order = "<" if sys.byteorder == "little" else ">"
    return "".join(f"{number:08X}" for (number,) in struct.iter_unpack(f"{order}I", packed))
