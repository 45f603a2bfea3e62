"""### Use a cluster in a task of your own

The hook has the admin API and the client library, with the credentials of the connection.
"""

from __future__ import annotations

import asyncio

from airflow.sdk import dag, task

from pulsar_fleet.airflow import PulsarHook


# [START hook]
@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_hook():
    @task
    def list_namespaces(tenant: str) -> list[str]:
        async def read() -> list[str]:
            async with PulsarHook("pulsar_default").admin() as admin:
                return [str(namespace) for namespace in await admin.namespaces(tenant)]

        return asyncio.run(read())

    @task
    def count_partitions(topic: str) -> int:
        with PulsarHook("pulsar_default").message_client() as client:
            return len(client.get_topic_partitions(topic))

    @task
    def read_contents(topic: str) -> list[str]:
        with PulsarHook("pulsar_default").reader(topic, start="earliest") as messages:
            return [message.content.decode() for message in messages]

    list_namespaces("examples")
    count_partitions("persistent://examples/airflow/invoices")
    read_contents("persistent://examples/airflow/invoices")


example_pulsar_hook()
# [END hook]
