"""Connect a new producer to each topic: `enter.py URL TOPIC…` prints those that none can enter within 30 s."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import pulsar


def main() -> None:
    """Each with a client of its own: one that hangs must not hold up the others."""
    url, *topics = sys.argv[1:]
    entered: set[str] = set()

    def enter(topic: str) -> None:
        silent = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        client = pulsar.Client(url, logger=silent, operation_timeout_seconds=25, io_threads=1)
        try:
            client.create_producer(topic)
        except pulsar.PulsarException:
            return
        entered.add(topic)

    threads = [threading.Thread(target=enter, args=(topic,), daemon=True) for topic in topics]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    print(json.dumps([topic for topic in topics if topic not in entered]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
