"""Free TCP ports on this machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterator

from pulsar_fleet.cluster.errors import PreconditionFailed

# Below the ephemeral ports of Linux (32768) and macOS (49152): no outgoing connection takes one between pick and use.
CANDIDATES = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port now, on loopback and on every address."""
    return all(_can_bind(address, port) for address in ("127.0.0.1", ""))


def _can_bind(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does, so that a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether a process listens on the port. Unlike `is_free`, this never blocks the port for another process."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(*, avoid: Collection[int] = ()) -> Iterator[int]:
    """Yield different free ports, in no order; another process may still take one before it is used."""
    for port in random.sample(CANDIDATES, len(CANDIDATES)):
        if port not in avoid and is_free(port):
            yield port
    raise PreconditionFailed(
        f"No free port between {CANDIDATES.start} and {CANDIDATES.stop - 1}; stop some of what listens there."
    )


def ports_from(base: int) -> Iterator[int]:
    """Yield `base`, `base + 1`, …; a taken one is refused, because the caller asked for exactly these."""
    for port in range(base, 65_536):
        if not is_free(port):
            raise PreconditionFailed(f"Port {port} is taken; choose another port base than {base}, or leave it out.")
        yield port
    raise PreconditionFailed(f"Port base {base} leaves too few ports below 65536; choose a lower one.")
