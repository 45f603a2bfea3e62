"""Publish what happens to DAG runs and tasks to a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseNotifier, Context


class PulsarNotifier(BaseNotifier):
    """Publish a message when a task or a DAG run fails, succeeds or is retried; for `on_failure_callback` and the like.

    The content is JSON: `{"dag_id", "run_id", "task_id", "state", "text"}`; the key is the id of the DAG, so that the
    messages of a DAG keep their order. Of a run and of a missed deadline there is no task, and the state is the run's.
    Airflow logs an error of a notifier and goes on: nothing publishes it again.

    :param topic: the topic (templated).
    :param text: a sentence for people (templated).
    :param pulsar_conn_id: the connection (templated).
    """

    template_fields: Sequence[str] = ("topic", "text", "pulsar_conn_id")

    def __init__(self, *, topic: str, text: str = "", pulsar_conn_id: str = "pulsar_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.text = text
        self.pulsar_conn_id = pulsar_conn_id

    def notify(self, context: Context) -> None:
        """Publish from a worker, or from the DAG processor for a DAG run."""
        from pulsar_fleet.airflow.hooks.pulsar import PulsarHook

        PulsarHook(self.pulsar_conn_id).publish(self.topic, [self._message(context)])

    async def async_notify(self, context: Context) -> None:
        """Publish from the triggerer, for a deadline."""
        from pulsar_fleet.airflow.hooks.pulsar import aread_connection
        from pulsar_fleet.messages.clients.publish import OutgoingMessage, publish

        connection = await aread_connection(self.pulsar_conn_id)
        await publish(connection, self.topic, [OutgoingMessage.of(self._message(context))])

    def _message(self, context: Context) -> dict[str, Any]:
        run: Any = context.get("dag_run")
        instance: Any = context.get("ti")
        if isinstance(run, Mapping):
            # For a deadline Airflow gives the run as its API answers it, with the id under another name (3.1 to 3.3).
            dag_id, run_id, state = run.get("dag_id"), run.get("dag_run_id"), run.get("state")
        else:
            dag_id, run_id = getattr(run, "dag_id", None), getattr(run, "run_id", None)
            state = getattr(instance or run, "state", "")
        content = {
            "dag_id": dag_id,
            "run_id": run_id,
            "task_id": getattr(instance, "task_id", None),
            "state": str(state or ""),
            "text": self.text,
        }
        return {"content": json.dumps(content), "key": dag_id}
