"""The namespaces that a migration moves: by name, tenant or pattern, or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import FUNCTIONS_STATE, SYSTEM_TENANT, NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import did_you_mean, listed
from pulsar_fleet.snapshot.cluster_reader import list_namespaces, tenant_names

ALL = "all"
_DEFAULT = NamespaceName("public", "default")


def parse_scope(texts: Sequence[str]) -> Selection:
    """Read `tenant/namespace`, `tenant`, `re:` with a pattern of the whole `tenant/namespace`, or `all` alone.

    :raises InvalidRequest: nothing is named, `all` is used together with other texts, a name or pattern is not valid,
        or a namespace belongs to the brokers.
    """
    names = tuple(text.strip() for text in texts)
    if not any(names):
        raise InvalidRequest(
            'The run\'s configuration names no namespace: set \'namespaces\', for example ["acme/orders"], ["acme"], '
            '["re:acme/.*"] or ["all"].'
        )
    if ALL in names:
        if len(set(names)) > 1:
            raise InvalidRequest(
                f"'all' is used together with {next(name for name in names if name != ALL)!r}: give one or the other."
            )
        return Selection()
    selection = Selection.parse(names)
    for name in sorted(selection.namespaces):
        if is_system(name):
            raise InvalidRequest(f"Namespace '{name}' belongs to the brokers and is never moved: remove it.")
    if SYSTEM_TENANT in selection.tenants:
        raise InvalidRequest("Tenant 'pulsar' belongs to the brokers and is never moved: remove it.")
    return selection


def is_system(name: NamespaceName) -> bool:
    """Whether brokers or functions workers store their own state in this namespace."""
    return name.tenant == SYSTEM_TENANT or name == FUNCTIONS_STATE


def select_namespaces(
    selection: Selection, cluster: str, tenants: Iterable[str], namespaces: Iterable[NamespaceName]
) -> tuple[NamespaceName, ...]:
    """The selected namespaces, sorted, without duplicates.

    :param cluster: name of the cluster that has these `tenants` and `namespaces`.
    :raises NotFound: a named tenant, namespace or pattern matches nothing.
    :raises InvalidRequest: the selection is empty.
    """
    ordered, existing = sorted(set(namespaces)), set(tenants)
    if absent := selection.absent(existing, ordered):
        known = [*sorted(existing), *map(str, ordered)]
        hint = did_you_mean(absent[0], known, f"its tenants are {listed(sorted(existing), 10)}.")
        raise NotFound(
            f"{cluster} has no {listed(map(repr, absent))}, which 'namespaces' names; {hint}", cluster=cluster
        )
    chosen = tuple(name for name in ordered if selection.has(name) and not is_system(name))
    if not chosen:
        what = listed(selection.texts()) if selection.texts() else ALL
        raise InvalidRequest(f"{what!r} selects no namespace on {cluster}: correct 'namespaces' (--namespaces).")
    return chosen


async def resolve(blue: AdminClient, texts: Sequence[str]) -> tuple[NamespaceName, ...]:
    """The namespaces on blue that the run's configuration selects; one call for each tenant, changes nothing.

    `public/default`, which every cluster creates, is left out while it is empty, unless it is named.

    :raises InvalidRequest, NotFound: as `parse_scope` and `select_namespaces`.
    :raises NotAllowed: the role may not list the tenants, and the configuration does not name them.
    """
    selection = parse_scope(texts)
    cluster = await blue.cluster_name()
    listed = await list_namespaces(blue, await tenant_names(blue, selection), unknown=(NotFound,))
    by_tenant = {tenant: names for tenant, names in listed.items() if names is not None}
    chosen = select_namespaces(selection, cluster, by_tenant, [name for names in by_tenant.values() for name in names])
    if _DEFAULT in chosen and not selection.names(_DEFAULT) and not await blue.topics(_DEFAULT):
        chosen = select_namespaces(selection, cluster, by_tenant, [name for name in chosen if name != _DEFAULT])
    return chosen


async def unmigrated_namespaces(admin: AdminClient) -> tuple[str, ...]:
    """Namespaces whose clients the cluster does not redirect; one call for each tenant and each namespace.

    Those of the brokers and an empty `public/default` are left out. None, where the flag of the whole cluster redirects
    the clients of every topic.
    """
    if await redirects_every_topic(admin):
        return ()
    by_tenant = await list_namespaces(admin, await tenant_names(admin, Selection()), unknown=(NotFound,))
    names = sorted(name for existing in by_tenant.values() for name in existing or () if not is_system(name))
    if _DEFAULT in names and not await admin.topics(_DEFAULT):
        names.remove(_DEFAULT)
    documents = await asyncio.gather(*(admin.namespace(name) for name in names))
    return tuple(
        str(name)
        for name, document in zip(names, documents, strict=True)
        if document is not None and not document.get("migrated")
    )


async def namespaces_besides(blue: AdminClient, names: Collection[NamespaceName]) -> tuple[str, ...]:
    """Namespaces on blue that are neither named nor of the brokers: the flag of the cluster would redirect them too."""
    return tuple(str(name) for name in await resolve(blue, [ALL]) if name not in names)
