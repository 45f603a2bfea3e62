"""Every example DAG of the provider runs against real clusters, as its page shows it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from airflow.sdk import DAG
from docs.tools.provider_page import PAGE, generated_page
from tests.support.dag_runs import run_dag, states
from tests.support.replication import know_each_other, replicate

from pulsar_fleet.airflow import PulsarConsumeOperator, PulsarHook
from pulsar_fleet.airflow.conditions import BacklogCondition, PhaseCondition, ReplicationCondition, TerminationCondition
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.clients.consume import create_subscription
from pulsar_fleet.messages.clients.publish import OutgoingMessage, publish
from pulsar_fleet.messages.clients.stream import Subscription

pytestmark = pytest.mark.onboarding

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "tests" / "system"
NAMESPACE = NamespaceName("examples", "airflow")
SUBSCRIPTION = (Subscription(topic="persistent://examples/airflow/invoices", name="warehouse"), print)
AT_ONCE = {"most_messages": 1, "batch_size": 1, "wait_seconds": 0}


@pytest.fixture(scope="session")
def examples() -> Any:
    """The DAG files of `tests/system`, stored so that runs can be made of them."""
    return stored(EXAMPLES, "examples")


def stored(folder: Path, bundle: str) -> Any:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session

    initdb()
    bag = DagBag(dag_folder=str(folder), bundle_name=bundle, bundle_path=folder)
    assert bag.import_errors == {}
    with create_session() as session:
        session.merge(DagBundleModel(name=bundle))
    sync_bag_to_db(bag, bundle_name=bundle, bundle_version=None)
    return bag


@pytest.fixture
async def cluster(
    blue: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
    records: Path,
) -> AsyncIterator[ClusterConnection]:
    """Blue as `pulsar_default`, with an empty namespace of the examples that replicates to green."""
    await know_each_other(on_blue, on_green)
    await remove(on_blue, on_green)
    await replicate(on_blue, on_green, NAMESPACE)
    document = {"conn_type": "pulsar", "host": blue.admin_url, "extra": {"service_url": blue.service_url}}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_DEFAULT", json.dumps(document))
    yield blue
    await remove(on_blue, on_green)


async def remove(*admins: AdminClient) -> None:
    """Delete the topics of the examples and their namespace, where they are."""
    for admin in admins:
        if await admin.namespace(NAMESPACE):
            own = await admin.cluster_name()
            await admin.post(f"/namespaces/{NAMESPACE.path}/replication", [own])
            await admin.delete(f"/namespaces/{NAMESPACE.path}", force=True)


def consumed(cluster: ClusterConnection, topic: str) -> list[Any]:
    received: list[Any] = []
    subscription = Subscription(topic=topic, name=f"test-{uuid.uuid4().hex}", initial_position="earliest")
    limits = {"most_messages": 100, "batch_size": 100, "wait_seconds": 3}
    PulsarHook("pulsar_default").consume(subscription, received.extend, **limits)
    return received


@pytest.mark.parametrize("example", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_every_example_is_a_dag_of_the_name_of_its_file(examples: Any, example: str) -> None:
    assert example in examples.dags


def test_the_providers_page_has_the_examples_and_parameters_as_they_are() -> None:
    assert (REPOSITORY / PAGE).read_text() == generated_page(REPOSITORY), "run: make docs"


def test_messages_are_published_and_consumed_in_batches(examples: Any, cluster: ClusterConnection) -> None:
    run = examples.dags["example_pulsar_publish_and_consume"].test()
    assert states(run) == {"publish": "success", "consume": "success"}
    results = {instance.task_id: instance.xcom_pull(task_ids=instance.task_id) for instance in run.get_task_instances()}
    assert (results["publish"]["messages"], results["consume"]["messages"]) == (2, 2)
    received = consumed(cluster, "persistent://examples/airflow/invoices")
    assert sorted(message.content for message in received) == [b"42", f"plain text of {run.run_id}".encode()]


def test_the_hook_reads_and_looks_up(examples: Any, cluster: ClusterConnection) -> None:
    PulsarHook("pulsar_default").publish("persistent://examples/airflow/invoices", ["first", "second"])
    run = examples.dags["example_pulsar_hook"].test()
    assert states(run) == dict.fromkeys(("list_namespaces", "count_partitions", "read_contents"), "success")
    assert run.get_task_instance("read_contents").xcom_pull(task_ids="read_contents") == ["first", "second"]


@pytest.mark.long
def test_a_failed_task_publishes_a_message(examples: Any, cluster: ClusterConnection) -> None:
    run = examples.dags["example_pulsar_notifier"].test()
    assert states(run) == {"fail": "failed"}
    (message,) = consumed(cluster, "persistent://examples/airflow/failures")
    content = json.loads(message.content)
    assert (message.key, content["run_id"], content["task_id"]) == ("example_pulsar_notifier", run.run_id, "fail")
    assert content["text"] == "fail of example_pulsar_notifier failed: look at its log."


@pytest.fixture
async def topic(cluster: ClusterConnection, on_blue: AdminClient) -> TopicName:
    """A replicated topic without subscriptions, of a namespace whose migration is finished."""
    topic = TopicName(NAMESPACE, "invoices")
    await on_blue.create_topic(topic)
    run = Run.open("migrate_namespaces/example")
    for phase in ("verified", "finished"):
        run.ledger.enter_phase(run.id, str(NAMESPACE), phase)
    return topic


@pytest.mark.long
@pytest.mark.parametrize("deferrable", ["False", "True"])
def test_every_sensor_waits_for_its_condition(
    examples: Any, cluster: ClusterConnection, topic: TopicName, deferrable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", deferrable)
    application = Timer(8, lambda: PulsarHook("pulsar_default").consume(*SUBSCRIPTION, **AT_ONCE))
    application.start()
    run = examples.dags["example_pulsar_sensors"].test()
    application.join()
    assert states(run) == dict.fromkeys(("application_started", "drained", "replicated", "migrated"), "success")
    (started,) = (run.get_task_instance(task_id) for task_id in ("application_started",))
    assert (started.end_date - run.start_date).total_seconds() > 8


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_topic_is_read_to_its_end_after_its_termination(
    examples: Any, cluster: ClusterConnection, partitions: int
) -> None:
    topic = TopicName(NAMESPACE, "closing")
    asyncio.run(create(cluster, topic, partitions))
    subscription = Subscription(topic=str(topic), name="warehouse", initial_position="earliest")
    PulsarHook("pulsar_default").publish(str(topic), ["last"])
    owner = Timer(8, lambda: asyncio.run(terminate(cluster, topic, partitions)))
    limits = {**AT_ONCE, "wait_seconds": 10}
    application = Timer(16, lambda: PulsarHook("pulsar_default").consume(subscription, print, **limits))
    create_subscription(cluster, subscription)
    for timer in (owner, application):
        timer.start()
    run = examples.dags["example_pulsar_terminated"].test()
    application.join()
    assert states(run) == {"terminated": "success", "drained": "success"}
    terminated, drained = (run.get_task_instance(task_id) for task_id in ("terminated", "drained"))
    assert (terminated.end_date - run.start_date).total_seconds() > 7
    assert drained.end_date > terminated.end_date


async def create(cluster: ClusterConnection, topic: TopicName, partitions: int) -> None:
    async with AdminClient(cluster) as admin:
        await (admin.create_partitioned_topic(topic, partitions) if partitions else admin.create_topic(topic))


async def terminate(cluster: ClusterConnection, topic: TopicName, partitions: int) -> None:
    async with AdminClient(cluster) as admin:
        await admin.post(f"/{topic.path}/terminate{'/partitions' if partitions else ''}")


async def test_one_open_partition_keeps_a_topic_from_being_terminated(
    cluster: ClusterConnection, on_blue: AdminClient
) -> None:
    topic = TopicName(NAMESPACE, "parts")
    await on_blue.create_partitioned_topic(topic, 2)
    await on_blue.post(f"/{topic.partitions(2)[0].path}/terminate")
    condition = TerminationCondition(topic=str(topic))
    assert await condition.read(cluster) == (False, f"{topic}: 1 of 2 partitions terminated")


@pytest.mark.parametrize(
    ("topic", "error", "sentence"),
    [
        ("persistent://examples/airflow/nowhere", NotFound, "nowhere not found"),
        ("non-persistent://examples/airflow/volatile", InvalidRequest, "is not persistent"),
    ],
)
async def test_a_topic_that_cannot_be_terminated_is_named(
    cluster: ClusterConnection, topic: str, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        await TerminationCondition(topic=topic).read(cluster)


async def test_a_backlog_is_counted_and_a_missing_subscription_is_named(
    cluster: ClusterConnection, topic: TopicName, on_blue: AdminClient
) -> None:
    await on_blue.create_subscription(topic, "warehouse")
    await publish(cluster, str(topic), [OutgoingMessage(content=b"one"), OutgoingMessage(content=b"two")])
    backlog = BacklogCondition(topic=str(topic), subscription="warehouse", at_least=1)
    assert await backlog.read(cluster) == (True, f"{topic}, subscription warehouse: backlog 1 entry")
    assert (await replace(backlog, at_least=None, at_most=0).read(cluster))[0] is False
    missing = BacklogCondition(topic=str(topic), subscription="none", at_most=0)
    with pytest.raises(NotFound, match="has no subscription 'none'"):
        await missing.read(cluster)


@pytest.mark.parametrize(
    ("condition", "settings", "sentence"),
    [
        (BacklogCondition, {"topic": "persistent://a/b/c", "subscription": "s"}, "at_most or at_least"),
        (ReplicationCondition, {"to_cluster": "green"}, "topic or namespace"),
        (PhaseCondition, {"namespace": "a/b", "phase": "finnished"}, "did you mean 'finished'"),
    ],
)
def test_an_unclear_condition_is_refused(condition: type[Any], settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        condition(**settings)


def test_a_batch_whose_callable_failed_is_delivered_again(cluster: ClusterConnection, topic: TopicName) -> None:
    hook, batches = PulsarHook("pulsar_default"), list[list[bytes]]()

    def fail_at_three(messages: Any) -> None:
        batches.append([message.content for message in messages])
        if b"3" in batches[-1]:
            raise ValueError("the warehouse does not answer")

    hook.publish(str(topic), [str(number) for number in range(6)])
    subscription = Subscription(topic=str(topic), name="warehouse", initial_position="earliest")
    limits = {"most_messages": 100, "batch_size": 2, "wait_seconds": 2}
    with pytest.raises(ValueError, match="the warehouse does not answer"):
        hook.consume(subscription, fail_at_three, **limits)
    assert batches == [[b"0", b"1"], [b"2", b"3"]]
    again: list[Any] = []
    assert hook.consume(subscription, again.extend, **limits)["messages"] == 4
    assert sorted(message.content for message in again) == [b"2", b"3", b"4", b"5"]


def test_a_task_sets_aside_what_its_callable_cannot_process(cluster: ClusterConnection, topic: TopicName) -> None:
    def store(messages: Any) -> None:
        if b"poison" in [message.content for message in messages]:
            raise ValueError("an amount is missing")

    PulsarHook("pulsar_default").publish(str(topic), ["1", "poison", "2"])
    with DAG("consume_with_dead_letters", schedule=None, params={"topic": f"{topic}-DLQ"}) as dag:
        settings = {"dead_letter_topic": "{{ params.topic }}", "max_redeliveries": 1, "wait_seconds": 1}
        PulsarConsumeOperator(task_id="consume", topic=str(topic), subscription="warehouse", process=store, **settings)
    run = run_dag(dag)
    assert states(run) == {"consume": "success"}
    result = run.get_task_instance("consume").xcom_pull(task_ids="consume")
    assert (result["messages"], result["dead_letters"]) == (3, 1)
    (dead,) = consumed(cluster, f"{topic}-DLQ")
    assert (dead.content, dead.properties["REAL_TOPIC"]) == (b"poison", str(topic))


def test_a_retry_stores_nothing_twice_where_the_namespace_deduplicates(
    cluster: ClusterConnection, topic: TopicName
) -> None:
    asyncio.run(_deduplicate(cluster, topic))
    hook, messages = PulsarHook("pulsar_default"), [str(number) for number in range(700)]
    for number in (300, 700):
        hook.publish(str(topic), messages[:number], producer_name="dag/run/task/-1")
    received: list[Any] = []
    limits = {"most_messages": 2000, "batch_size": 100, "wait_seconds": 3}
    hook.consume(Subscription(topic=str(topic), name="all", initial_position="earliest"), received.extend, **limits)
    assert sorted(message.content for message in received) == sorted(message.encode() for message in messages)


async def _deduplicate(cluster: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(cluster) as admin, asyncio.timeout(60):
        await admin.post(f"/namespaces/{NAMESPACE.path}/deduplication", True)
        # The broker tells a loaded topic later: what is published before is stored again by a retry.
        while (await admin.stats(topic))["deduplicationStatus"] != "Enabled":
            await asyncio.sleep(0.1)
