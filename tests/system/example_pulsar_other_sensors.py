"""### Wait with sensors of other providers

A file arrives, its lines are published; the task after them starts when the broker has stored all of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import dag, task

from pulsar_fleet.airflow import PulsarHook

TOPIC = "persistent://examples/airflow/lines"


# [START other_sensors]
def is_stored(number: int) -> bool:
    """Whether the topic has so many entries, by the admin API."""

    async def read() -> int:
        async with PulsarHook("pulsar_default").admin() as admin:
            document = await admin.get("/persistent/examples/airflow/lines/internalStats")
            return int(document["entriesAddedCounter"])

    return asyncio.run(read()) >= number


@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__, params={"file": "/srv/lines.txt"})
def example_pulsar_other_sensors():
    @task
    def publish(params: dict[str, str]) -> int:
        return PulsarHook("pulsar_default").publish(TOPIC, Path(params["file"]).read_text().splitlines())

    arrived = FileSensor(task_id="arrived", filepath="{{ params.file }}", poke_interval=15, timeout=600)
    published = publish()
    stored = PythonSensor(task_id="stored", python_callable=is_stored, op_args=[1], poke_interval=15, timeout=600)
    arrived >> published >> stored


example_pulsar_other_sensors()
# [END other_sensors]
