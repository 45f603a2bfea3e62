"""What one writes in ten minutes: two readers and a dict. `python plain_script.py BLUE_URL GREEN_URL TOPIC`."""

from __future__ import annotations

import json
import sys

import pulsar


def read(url: str, topic: str) -> dict[str, bytes]:
    """Payload by key."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    payloads = {}
    while reader.has_message_available():
        message = reader.read_next()
        payloads[message.partition_key()] = message.data()
    client.close()
    return payloads


if __name__ == "__main__":
    blue, green = (read(url, sys.argv[3]) for url in sys.argv[1:3])
    missing, extra = blue.keys() - green.keys(), green.keys() - blue.keys()
    altered = {key for key in blue.keys() & green.keys() if blue[key] != green[key]}
    sys.stdout.write(json.dumps({"named": sorted(missing | extra | altered)}))
