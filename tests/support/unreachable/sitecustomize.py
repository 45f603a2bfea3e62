"""Processes of Python that cannot connect to some ports of this machine, as behind a firewall."""

import os
import sys
from typing import Any

_PORTS = frozenset(map(int, filter(None, os.environ.get("UNREACHABLE_PORTS", "").split(","))))


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][1] in _PORTS:
        raise ConnectionRefusedError(111, "Connection refused")


if _PORTS:
    sys.addaudithook(_refuse)
