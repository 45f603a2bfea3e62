"""People who edit policies of several clusters at the same time, some of them while clusters are being reconciled."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.reconciler import SETTERS

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName

_MOST_PAUSED = 0.1
_OF_TOPICS = ("maxProducers", "maxConsumers")
_ROLES = ("writer", "reader")
_RIGHTS = (["produce"], ["consume", "produce"], ["functions"])
"""So few that somebody often gives a role back the rights that it had before."""


@dataclass(frozen=True, slots=True)
class Field:
    """What people edit: a policy of a namespace, an entry of its rights, or a policy of a topic.

    :param path: of its setter.
    :param where: keys that lead to it in the namespace's document; none for a policy of a topic.
    """

    of: NamespaceName | TopicName
    path: str
    where: tuple[str, ...] = ()

    async def set(self, admin: AdminClient, value: Json) -> None:
        base = f"namespaces/{self.of.path}" if isinstance(self.of, NamespaceName) else self.of.path
        await admin.post(f"/{base}/{self.path}", value)

    async def read(self, admin: AdminClient) -> Json:
        if isinstance(self.of, TopicName):
            return await admin.get(f"/{self.of.path}/{self.path}")
        value: Json = await admin.namespace(self.of)
        for key in self.where:
            value = (value or {}).get(key)
        return sorted(value) if isinstance(value, list) else value

    def value(self, chance: random.Random) -> Json:
        """Rights of a few, otherwise a value that hardly anybody else has."""
        return chance.choice(_RIGHTS) if self.path.startswith("permissions/") else chance.randint(1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Edit:
    """The last value that somebody set in a round; it was set between two times, in seconds of the monotonic clock."""

    value: Json
    began: float
    ended: float


Edits = Mapping[Field, Mapping[str, Edit]]
"""Field → cluster → what was set there last."""


def fields_of(namespaces: Iterable[NamespaceName], topics: Iterable[TopicName]) -> tuple[Field, ...]:
    """All that is edited."""
    names = tuple(namespaces)
    plain = (Field(name, path, (field,)) for name in names for path, field in SETTERS)
    rights = (
        Field(name, f"permissions/{role}", ("auth_policies", "namespace_auth", role))
        for name in names
        for role in _ROLES
    )
    return (*plain, *rights, *(Field(topic, path) for topic in topics for path in _OF_TOPICS))


async def edit(
    admins: Mapping[str, AdminClient], fields: Sequence[Field], chance: random.Random, *, paused: bool
) -> Edits:
    """On each cluster somebody edits some fields, one after the other: some edited nowhere else, some on all clusters.

    :param paused: with pauses, and some fields twice: the second value is the one that counts.
    """
    planned: dict[str, list[Field]] = {name: [] for name in admins}
    for field in fields:
        for name in chance.choice(
            [(), *((cluster,) for cluster in admins), chance.sample(sorted(admins), 2), tuple(admins)]
        ):
            planned[name] += [field, field] if paused and chance.random() < 0.2 else [field]
    done: dict[Field, dict[str, Edit]] = {}

    async def person(name: str) -> None:
        for field in chance.sample(planned[name], len(planned[name])):
            await asyncio.sleep(chance.random() * _MOST_PAUSED if paused else 0)
            value, began = field.value(chance), time.monotonic()
            await field.set(admins[name], value)
            done.setdefault(field, {})[name] = Edit(value, began, time.monotonic())

    await asyncio.gather(*map(person, admins))
    return done


async def held_on(admins: Mapping[str, AdminClient], fields: Sequence[Field]) -> dict[Field, dict[str, Json]]:
    """Field → cluster → what it holds."""

    async def read(admin: AdminClient) -> list[Json]:
        return [await field.read(admin) for field in fields]

    by_cluster = dict(zip(admins, await asyncio.gather(*map(read, admins.values())), strict=True))
    return {field: {name: by_cluster[name][at] for name in admins} for at, field in enumerate(fields)}
