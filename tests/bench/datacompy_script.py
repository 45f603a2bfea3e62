"""Both sides as data frames, compared by datacompy: `python datacompy_script.py BLUE_URL GREEN_URL TOPIC`."""

from __future__ import annotations

import json
import sys

import datacompy
import pulsar

FIELDS = ("key", "payload", "properties", "event_time", "publish_time")


def read(url: str, topic: str) -> object:
    """A data frame with one row a message."""
    import pandas

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    rows = []
    while reader.has_message_available():
        message = reader.read_next()
        properties = json.dumps(message.properties(), sort_keys=True)
        rows.append((message.partition_key(), message.data().hex(), properties, message.event_timestamp(), 0))
    client.close()
    return pandas.DataFrame(rows, columns=list(FIELDS))


if __name__ == "__main__":
    blue, green = (read(url, sys.argv[3]) for url in sys.argv[1:3])
    compared = datacompy.PandasCompare(blue, green, join_columns=["key"])
    unequal = compared.all_mismatch()
    named = {*compared.df1_unq_rows["key"], *compared.df2_unq_rows["key"], *unequal["key"]}
    sys.stdout.write(json.dumps({"named": sorted(named)}))
