"""Which namespaces a migration moves: by name, tenant or pattern, or all of them; one function here looks at blue."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import BROKERS_TENANT, FUNCTIONS_STATE, NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.tenants import list_namespaces, tenant_names

ALL = "all"
_DEFAULT = NamespaceName("public", "default")


def parse_scope(texts: Sequence[str]) -> Selection:
    """Read `tenant/namespace`, `tenant`, `re:` with a pattern of the whole `tenant/namespace`, or `all` by itself.

    :raises Rejected: nothing is named, `all` stands beside something else, a name or pattern is none, or a namespace
        belongs to the brokers.
    """
    given = tuple(text.strip() for text in texts)
    if not any(given):
        raise InvalidRequest(
            'The run\'s configuration names no namespace: set \'namespaces\', for example ["acme/orders"], ["acme"], '
            '["re:acme/.*"] or ["all"].'
        )
    if ALL in given:
        if len(set(given)) > 1:
            raise InvalidRequest(
                f"'all' stands beside {next(one for one in given if one != ALL)!r}: give one or the other."
            )
        return Selection()
    selection = Selection.parse(given)
    for name in sorted(selection.namespaces):
        if is_system(name):
            raise InvalidRequest(f"Namespace '{name}' belongs to the brokers and is never moved: leave it out.")
    if BROKERS_TENANT in selection.tenants:
        raise InvalidRequest("Tenant 'pulsar' belongs to the brokers and is never moved: leave it out.")
    return selection


def is_system(name: NamespaceName) -> bool:
    """Whether the brokers or the functions workers keep their own state there."""
    return name.tenant == BROKERS_TENANT or name == FUNCTIONS_STATE


def choose(
    selection: Selection, cluster: str, tenants: Iterable[str], namespaces: Iterable[NamespaceName]
) -> tuple[NamespaceName, ...]:
    """The namespaces that are meant, in order, each once.

    :param cluster: whose `tenants` and `namespaces` these are.
    :raises Missing: something that was named is not there.
    :raises Rejected: nothing is left to move.
    """
    held, existing = sorted(set(namespaces)), set(tenants)
    if absent := selection.absent(existing, held):
        known = [*sorted(existing), *map(str, held)]
        close = difflib.get_close_matches(absent[0], known, n=1)
        meant = f"did you mean {close[0]!r}?" if close else f"its tenants are {', '.join(sorted(existing)) or 'none'}."
        listed = ", ".join(repr(one) for one in absent)
        raise NotFound(f"{cluster} has no {listed}, which 'namespaces' names; {meant}", cluster=cluster)
    chosen = tuple(name for name in held if selection.has(name) and not is_system(name))
    if not chosen:
        what = ", ".join(selection.texts()) or ALL
        raise InvalidRequest(
            f"{what!r} selects no namespace on {cluster}: correct 'namespaces' in the run's configuration."
        )
    return chosen


async def resolve(blue: AdminClient, texts: Sequence[str]) -> tuple[NamespaceName, ...]:
    """The namespaces on blue that the run's configuration means; a call for each tenant, nothing is changed.

    `public/default`, which every cluster makes for itself, is left out while it is empty, unless it is named.

    :raises Rejected, Missing: as `parse_scope` and `choose` say.
    :raises NotAllowed: our role may not list the tenants, and the configuration does not name them.
    """
    selection = parse_scope(texts)
    cluster = await blue.cluster_name()
    listed = await list_namespaces(blue, await tenant_names(blue, selection), unknown=(NotFound,))
    found = {tenant: names for tenant, names in listed.items() if names is not None}
    chosen = choose(selection, cluster, found, [name for names in found.values() for name in names])
    if _DEFAULT in chosen and not selection.names(_DEFAULT) and not await blue.topics(_DEFAULT):
        chosen = choose(selection, cluster, found, [name for name in chosen if name != _DEFAULT])
    return chosen
