"""One comparison in a fresh process, for its memory: BLUE GREEN NAMESPACE ENGINE REQUEST as arguments.

BLUE and GREEN are admin and service URL with a comma, REQUEST is the file that gets the frozen request. Prints a JSON
object: seconds of each phase, entries, messages, the verdict, and the most memory that the process ever had, in MB.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process


async def main(blue: str, green: str, namespace: str, engine: str, request_file: str) -> dict[str, object]:
    source, target = (_connection(name, urls) for name, urls in (("blue", blue), ("green", green)))
    async with AdminClient(source) as on_source, AdminClient(target) as on_target:
        began = time.monotonic()
        request = await freeze_bounds(
            on_source, on_target, [NamespaceName.parse(namespace)], engine=EngineChoice(engine)
        )
        Path(request_file).write_bytes(request.to_bytes())
        read = frozen = time.monotonic()
        read_cpu = cpu = time.process_time()

        def progress(done: int, entries: int) -> None:
            nonlocal read, read_cpu
            read, read_cpu = time.monotonic(), time.process_time()

        verification = await verify_in_process(on_source, on_target, request, progress=progress)
        ended = time.monotonic()
    return {
        "freeze": frozen - began,
        "read": read - frozen,
        "read_cpu": read_cpu - cpu,
        "check": ended - read,
        "topics": len(request.pairs),
        "entries": request.entries,
        "messages": verification.messages,
        "verdict": verification.verdict,
        "megabytes": _most_memory(),
    }


def _connection(name: str, urls: str) -> ClusterConnection:
    admin_url, service_url = urls.split(",")
    return ClusterConnection(name=name, admin_url=admin_url, service_url=service_url)


def _most_memory() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))))
