"""Operators that publish and consume messages, and their datasets of OpenLineage where its provider is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, conf
from airflow.sdk import BaseOperator, Context

from pulsar_fleet.airflow.triggers.waiting import Status, WaitTrigger
from pulsar_fleet.cluster.errors import PreconditionFailed

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.messages.clients.dead_letters import DeadLetterPolicy
    from pulsar_fleet.messages.clients.received import ReceivedMessage
    from pulsar_fleet.messages.clients.stream import Subscription


def topic_lineage(cluster: ClusterConnection | None, topic: str, *, written: bool) -> Any:
    """The `OperatorLineage` of a task that wrote or read a topic: dataset `pulsar://host:port`, the name of the topic.

    None without the provider, or when the task did not reach the cluster.
    """
    try:
        from airflow.providers.common.compat.openlineage.facet import InputDataset, OutputDataset
        from airflow.providers.openlineage.extractors import OperatorLineage
    except ImportError:
        return None
    if cluster is None or not cluster.service_url:
        return None
    names = {"namespace": dataset_namespace(cluster.service_url), "name": topic}
    return (
        OperatorLineage(outputs=[OutputDataset(**names)])
        if written
        else OperatorLineage(inputs=[InputDataset(**names)])
    )


def dataset_namespace(service_url: str) -> str:
    """`pulsar://host:port` of the first broker, with or without TLS: one topic is one dataset."""
    return "pulsar://" + service_url.partition("://")[2].partition(",")[0].rstrip("/")


_POLL_SECONDS = 10.0


class PulsarPublishOperator(BaseOperator):
    """Publish messages to a topic; the XCom is `{"topic": …, "messages": number}`.

    A retry publishes all of them again. Where the namespace has deduplication, the broker stores none twice: they have
    the producer name `dag/run/task/map index` and are numbered. Keep the list the same between tries then.

    :param topic: the topic (templated).
    :param messages: texts, or objects with `content`, `key` and `properties` (templated); or one of them.
    :param pulsar_conn_id: the connection (templated).
    """

    template_fields: Sequence[str] = ("topic", "messages", "pulsar_conn_id")

    def __init__(self, *, topic: str, messages: Any, pulsar_conn_id: str = "pulsar_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.messages = messages
        self.pulsar_conn_id = pulsar_conn_id
        self._cluster: ClusterConnection | None = None

    def execute(self, context: Context) -> JsonObject:
        """Publish, and wait until the broker has stored all."""
        from pulsar_fleet.airflow.hooks.pulsar import PulsarHook

        messages = self.messages if isinstance(self.messages, list | tuple) else [self.messages]
        instance = context["ti"]
        name = f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.map_index}"
        hook = PulsarHook(self.pulsar_conn_id)
        number = hook.publish(self.topic, messages, producer_name=name)
        self._cluster = hook.cluster
        self.log.info("Published %d messages to %s", number, self.topic)
        return {"topic": self.topic, "messages": number}

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The topic as an output, for the provider of OpenLineage."""
        return topic_lineage(self._cluster, self.topic, written=True)


class PulsarConsumeOperator(BaseOperator):
    """Consume a subscription in batches; a batch is acknowledged only after the callable succeeded.

    It ends after `max_messages`, or when no message came for `wait_seconds`; the XCom is `{"messages": number,
    "batches": number, "dead_letters": number}`. When the callable raises, the task fails, and a retry gets that batch
    again, and messages whose acknowledgment was lost: the callable may see a message twice (at least once), with the
    same `message_id`. With `dead_letter_topic` a message that fails again and again is set aside instead.

    :param topic: the topic (templated).
    :param subscription: its subscription, which is created if it does not exist (templated).
    :param process: called with a list of `ReceivedMessage`; what it returns is ignored.
    :param pulsar_conn_id: the connection (templated).
    :param subscription_type: `shared`, `key_shared`, `failover` or `exclusive`.
    :param initial_position: where a new subscription begins, `earliest` or `latest`.
    :param batch_size: messages of one call, at most 1,000.
    :param max_messages: messages of one run of the task, at most.
    :param wait_seconds: without a message for so long, the task ends.
    :param deferrable: wait in the triggerer until a message can be delivered, without a worker slot: not a delayed one,
        and none that another consumer holds; default `[operators] default_deferrable`. Without it a task that finds no
        message succeeds with 0.
    :param dead_letter_topic: a topic for messages that the callable fails for again and again (templated); default: no
        such topic, and the task fails.
    :param max_redeliveries: how often the task has such a message delivered again before.
    :param max_dead_letters: such messages of one run of the task; one more fails the task, and stays unacknowledged.
    """

    template_fields: Sequence[str] = ("topic", "subscription", "pulsar_conn_id", "dead_letter_topic")

    def __init__(
        self,
        *,
        topic: str,
        subscription: str,
        process: Callable[[Sequence[ReceivedMessage]], Any],
        pulsar_conn_id: str = "pulsar_default",
        subscription_type: str = "shared",
        initial_position: str = "earliest",
        batch_size: int = 100,
        max_messages: int = 10_000,
        wait_seconds: float = 10.0,
        deferrable: bool | None = None,
        dead_letter_topic: str | None = None,
        max_redeliveries: int = 3,
        max_dead_letters: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.subscription = subscription
        self.process = process
        self.pulsar_conn_id = pulsar_conn_id
        self.subscription_type = subscription_type
        self.initial_position = initial_position
        self.batch_size = batch_size
        self.max_messages = max_messages
        self.wait_seconds = wait_seconds
        self.deferrable = deferrable
        self.dead_letter_topic = dead_letter_topic
        self.max_redeliveries = max_redeliveries
        self.max_dead_letters = max_dead_letters
        self._cluster: ClusterConnection | None = None

    def execute(self, context: Context) -> JsonObject:
        """Consume; or create the subscription and defer until it has a message to deliver."""
        deferrable = self.deferrable
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if not deferrable:
            return self._consume()
        from pulsar_fleet.airflow.hooks.pulsar import PulsarHook
        from pulsar_fleet.messages.clients.consume import create_subscription

        create_subscription(PulsarHook(self.pulsar_conn_id).cluster, self._settings())
        self._defer()

    def resume(self, context: Context, event: JsonObject) -> JsonObject:
        """Consume what the trigger saw, or fail with its sentence; defer again when another consumer took it."""
        if event["status"] == Status.ERROR:
            raise PreconditionFailed(str(event["message"]))
        result = self._consume()
        if not result["messages"]:
            self._defer()
        return result

    def _defer(self) -> NoReturn:
        from pulsar_fleet.airflow.conditions import MessageCondition, arguments_of, open_condition

        condition = MessageCondition(
            topic=self.topic,
            subscription=self.subscription,
            subscription_type=self.subscription_type,
            initial_position=self.initial_position,
        )
        arguments = arguments_of(condition, self.pulsar_conn_id)
        trigger = WaitTrigger(look=open_condition, arguments=arguments, poll_seconds=_POLL_SECONDS)
        self.defer(trigger=trigger, method_name="resume")

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The topic as an input, for the provider of OpenLineage."""
        return topic_lineage(self._cluster, self.topic, written=False)

    def _consume(self) -> JsonObject:
        from pulsar_fleet.airflow.hooks.pulsar import PulsarHook

        hook = PulsarHook(self.pulsar_conn_id)
        self._cluster = hook.cluster
        result = hook.consume(
            self._settings(),
            self.process,
            most_messages=self.max_messages,
            batch_size=self.batch_size,
            wait_seconds=self.wait_seconds,
            dead_letters=self._dead_letters(),
        )
        self.log.info("Consumed %(messages)d messages in %(batches)d batches, %(dead_letters)d dead letters", result)
        return result

    def _dead_letters(self) -> DeadLetterPolicy | None:
        from pulsar_fleet.messages.clients.dead_letters import DeadLetterPolicy

        if not self.dead_letter_topic:
            return None
        return DeadLetterPolicy(
            topic=self.dead_letter_topic,
            max_redeliveries=self.max_redeliveries,
            max_dead_letters=self.max_dead_letters,
            fatal=(AirflowException,),
        )

    def _settings(self) -> Subscription:
        from pulsar_fleet.messages.clients.stream import Subscription

        return Subscription(
            topic=self.topic,
            name=self.subscription,
            kind=self.subscription_type,
            initial_position=self.initial_position,
        )
