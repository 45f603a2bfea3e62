"""Count the messages of a topic by key: `count_messages.py ADMIN_URL SERVICE_URL TOPIC`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pulsar_fleet.spark import PulsarSource

# [START count_messages]
admin_url, service_url, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(PulsarSource)
addresses = {"admin_url": admin_url, "service_url": service_url}
messages = spark.read.format("pulsar").options(**addresses, topics=topic).load()
for row in messages.groupBy("key").count().orderBy("key").collect():
    print(f"{row['key']}: {row['count']} messages")  # noqa: T201
# [END count_messages]
