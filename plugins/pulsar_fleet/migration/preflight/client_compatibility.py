"""What each client does when it is redirected, by the version string in the broker's stats (pure).

One table with a row for each client family and version range. Evidence: redirects of real clients between two 4.2.4
clusters. "redirect" is `CommandTopicMigrated` (PIP-188); "quiesced" is the throttle before it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulsar_fleet.cluster.statistics import ConnectedClient
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.migration.model import Followed
from pulsar_fleet.preflight.findings import Severity

FOLLOWS = "client-follows"
CANNOT_FOLLOW = "client-cannot-follow"
NEEDS_TLS_URL = "client-needs-tls-url"
MAY_HANG = "client-may-hang"
REPEATS = "client-repeats"
UNKNOWN = "client-unknown"

_Version = tuple[int, ...]


class Advice(NamedTuple):
    """A consequence in a sentence, and its remedy."""

    consequence: str
    remedy: str


_NOT_KNOWN = Advice(
    "this client's version is not known to follow a redirect.",
    "identify the client; if in doubt, restart it against {green} after the cut-over.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What to expect of the clients of one family and range; by default, nothing was measured.

    :param finding: id of the gates' finding for them.
    :param pattern: of the version string; its group is the version.
    :param since: first version of the range.
    :param before: first version after the range; None for no end.
    :param can: what worked in the measurement.
    :param readers_stall: its readers may stop after the redirect, without an error.
    :param evidence: the measured version and the result.
    """

    family: str
    pattern: str
    evidence: str
    finding: str = UNKNOWN
    can: str = "not known"
    advice: Advice = _NOT_KNOWN
    since: _Version = ()
    before: _Version | None = None
    readers_stall: bool = False

    @property
    def severity(self) -> Severity | None:
        """The severity of the finding; None for clients that follow."""
        if self.finding == FOLLOWS:
            return None
        return Severity.BLOCKER if self.finding == CANNOT_FOLLOW else Severity.WARNING

    def covers(self, version: str) -> bool:
        """Whether this version string is in the range."""
        matched = re.match(self.pattern, version)
        if not matched:
            return False
        numbers = tuple(int(part) for part in matched[1].split("."))
        return numbers >= self.since and (self.before is None or numbers < self.before)

    @property
    def range(self) -> str:
        """`3.0 up to before 3.1`."""
        first = ".".join(map(str, self.since)) or "all"
        return first if self.before is None else f"{first} up to before {'.'.join(map(str, self.before))}"


_JAVA = r"^Pulsar-Java-v(\d+(?:\.\d+)+)"
_CPP = r"^Pulsar-CPP-v(\d+(?:\.\d+)+)"
_GO = r"^Pulsar-Go-v(\d+(?:\.\d+)+)"

_NEVER = Advice(
    "does not follow a redirect: its producers and consumers stop, without an error in the application.",
    "upgrade this application, or stop it before the cut-over and start it against {green}.",
)
_TLS = Advice(
    "fails on a redirect without a TLS URL and retries without end; the cut-over stores a TLS URL for it.",
    "nothing to do; the run names the clients that did not connect to {green}.",
)
_FAILS = Advice(
    "does not follow a redirect: its producers fail with a time-out.",
    _NEVER.remedy,
)
_HANGS = Advice(
    "C++ and Python clients up to 4.2.0 can deadlock when they reconnect during a redirect; "
    "the cut-over throttles producers to avoid it. The redirect ends the process (SIGABRT) of a Python client with a "
    "logger of Python, whatever its level, and of every client that logs at level Debug.",
    "plan a restart of these applications; the run names the clients that did not connect to {green}. Before the "
    "cut-over, have those that pass `logger=logging.getLogger(…)` pass `pulsar.FileLogger(pulsar.LoggerLevel.Info, "
    "path)` instead, or nothing.",
)
_REPEATS = Advice(
    "Go clients up to 0.19 do not publish for one operation timeout (30 s by default), send their pending queue twice, "
    "and their consumers may need a restart.",
    "turn deduplication on for the namespace on {blue}, which the run copies to {green} (the run would revert it on "
    "{green} alone), and plan a restart of these applications.",
)
TABLE: tuple[Behaviour, ...] = (
    Behaviour(
        finding=CANNOT_FOLLOW,
        family="Java before 3.0 (a bare version)",
        pattern=r"^(\d+\.\d+(?:\.\d+)*)",
        can="reads and writes until its topic is terminated",
        advice=_NEVER,
        evidence="2.11.4: all producers and consumers of 12 of 12 topics gone, quiesced and with a TLS URL too.",
    ),
    Behaviour(
        finding=CANNOT_FOLLOW,
        family="Java",
        pattern=_JAVA,
        before=(3, 0),
        can="reads and writes until its topic is terminated",
        advice=_NEVER,
        evidence="Not measured under this prefix; 2.11.4 did not know the redirect.",
    ),
    Behaviour(
        finding=NEEDS_TLS_URL,
        family="Java",
        pattern=_JAVA,
        since=(3, 0),
        before=(3, 1),
        can="follows when a TLS URL is stored, even an unreachable one; its readers do not",
        advice=_TLS,
        evidence="3.0.7: 18 of 18 topics stuck without a TLS URL; with one, 16 of 16 quiesced topics followed, with "
        "consumers of every type; 2 of 2 readers stopped reading at the cut-over, without an error.",
        readers_stall=True,
    ),
    Behaviour(
        finding=NEEDS_TLS_URL,
        family="Java",
        pattern=_JAVA,
        since=(3, 1),
        before=(3, 2),
        can="not known: a redirect with a TLS URL was not measured",
        advice=_TLS,
        evidence="3.1.3: 4 of 4 topics stuck without a TLS URL, by the same exception as 3.0.7; readers not measured.",
        readers_stall=True,
    ),
    Behaviour(
        family="Java",
        pattern=_JAVA,
        since=(3, 2),
        before=(3, 3),
        evidence="Not measured: no 3.2 was available.",
    ),
    Behaviour(
        finding=FOLLOWS,
        family="Java",
        pattern=_JAVA,
        since=(3, 3),
        can="follows with producers, consumers of every type and readers; some 30 s later its producers reconnect, "
        "when a request that {blue} does not answer times out, and send messages in flight again",
        advice=Advice(
            "follows the redirect", "nothing to do, or deduplication on {blue}'s namespace against the duplicates"
        ),
        evidence="4.2.4: 156 quiesced topics, none stuck, none gone, 0 lost, 6 duplicates; 12 on 2 of 16 busy topics "
        "half a minute after the cut-over; 4.0.4 and 3.3.9: 8 topics each by hand, no client gone. Newer ones were not "
        "measured.",
    ),
    Behaviour(
        finding=CANNOT_FOLLOW,
        family="C++, Python and Node",
        pattern=_CPP,
        before=(3, 5),
        can="publishes until its topic is terminated; consumers were not measured",
        advice=_FAILS,
        evidence="3.4.2 (Python 3.4.0): the producers of 2 of 2 topics failed with a time-out, none connected to "
        "{green}. Older ones were not measured.",
        readers_stall=True,
    ),
    Behaviour(
        finding=MAY_HANG,
        family="C++, Python and Node",
        pattern=_CPP,
        since=(3, 5),
        before=(4, 2, 1),
        can="follows with producers and consumers when quiesced",
        advice=_HANGS,
        evidence="4.2.0 (Python 3.13.0): 6 of 8 shared clients hung by hand, 0 of 108 quiesced topics; readers: 8 of 8 "
        "stalled where {green}'s ledger ids were lower. 3.5.1, 3.7.0, 3.7.1 and 4.0.1: one producer each followed. "
        "With a logger of Python each of these five ended with `Invalid BaseCommand enumeration value`.",
        readers_stall=True,
    ),
    Behaviour(
        finding=MAY_HANG,
        family="C++, Python and Node",
        pattern=_CPP,
        since=(4, 2, 1),
        advice=Advice(
            "no C++ or Python client is known to be free of the deadlock on a redirect that 4.2.0 has.", _HANGS.remedy
        ),
        evidence="Not measured: 4.2.0 was the newest.",
        readers_stall=True,
    ),
    Behaviour(
        finding=REPEATS,
        family="Go",
        pattern=_GO,
        before=(0, 20),
        can="follows with producers, after one operation timeout; its readers do not",
        advice=_REPEATS,
        evidence="0.19.0: 10,149 duplicates on 48 quiesced topics, 0 on 8 with deduplication on {green}; "
        "3 of 56 consumers gone; 4 of 4 readers connected to {green} and read nothing there.",
        readers_stall=True,
    ),
    Behaviour(
        family="Go",
        pattern=_GO,
        since=(0, 20),
        evidence="Not measured: 0.19.0 was the newest.",
        readers_stall=True,
    ),
)

_ANY_OTHER = Behaviour(family="any other", pattern=r"^$", evidence="No client with such a version string was measured.")


_MOST = 5
_DOCUMENTS = ((r"^(?:Pulsar-Java-v)?(\d+(?:\.\d+)+)", (2, 10)), (_CPP, (4, 1)))
"""Clients that can follow a connection document, and since when: `docs/clients.md`."""


def can_follow_document(version: str) -> bool:
    """Whether a client with this `clientVersion` can follow a connection document while it runs."""
    matched = ((re.match(pattern, version), since) for pattern, since in _DOCUMENTS)
    return any(match and tuple(map(int, match[1].split("."))) >= since for match, since in matched)


def followed_by(clients: Sequence[ConnectedClient], group: str, hosts: Collection[str]) -> Followed:
    """Whether all of these follow the document of a group: whose hosts read it, and whose version can.

    :param hosts: that have read it lately. Of several applications on one host it is not known which one does.
    """
    if not hosts:
        return Followed(False, f"no host has read the document of {group} from Airflow's server lately")
    if not clients:
        return Followed(False, f"no client is connected, so nobody knows who follows the document of {group}")
    number, reading = counted(len(clients), "client"), {*map(_address, hosts)}
    if others := [one for one in clients if _address(one.host) not in reading or not can_follow_document(one.version)]:
        names = listed(dict.fromkeys(map(str, others)), _MOST)
        return Followed(False, f"{len(others):,} of {number} do not follow the document of {group}: {names}")
    if readers := [one for one in clients if one.keeps_position]:
        names = listed(dict.fromkeys(map(str, readers)), _MOST)
        return Followed(
            False,
            f"{counted(len(readers), 'reader')} would lose the position by the document of {group} (to accept it, name "
            f"the strategy and set accept_readers): {names}",
        )
    return Followed(True, f"all {number} are on hosts that read the document of {group}, so that they can return")


def _address(host: str) -> str:
    """One way to write an address: Java writes IPv6 in full, and a server may write IPv4 as `::ffff:10.2.0.17`."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def behaviour(version: str) -> Behaviour:
    """What a client with this `clientVersion` does at the cut-over; an unknown version is a warning."""
    return next((row for row in TABLE if row.covers(version)), _ANY_OTHER)
