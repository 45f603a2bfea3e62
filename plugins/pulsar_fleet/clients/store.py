"""The connection documents of all groups as files, which whoever serves them may read without this package.

`<root>/<group>.json` is what clients read, and `<root>/<group>/published.json` says which version that is: Airflow's
server serves it, and nothing else. `<root>/<group>/000007.json` is written before both, so that a process which dies in
between leaves a version that was not published, and no client that follows something which nobody has recorded.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pulsar_fleet.clients.document import GROUP, ConnectionDocument, require_group
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import default_home
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import RecordedRun, utc

CLIENTS_VARIABLE = "PULSAR_FLEET_CLIENTS"
RETURN = "return_clients"
"""The procedure that leads clients back."""
_ENDS = "cut_over"
"""The phase in which the old cluster takes no more messages."""
_PUBLISHED = "published.json"
_VERSION = re.compile(r"(\d{6,})\.json")
_READABLE, _FOLDER = 0o644, 0o755
_READERS, _READ_SECONDS, _KEPT_SECONDS, _MOST_READERS = "readers", 5.0, 86_400.0, 1_000
_HOST = re.compile(r"[0-9A-Za-z.:_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication(Document):
    """One version of the document of a group.

    :param by: who published it, and from where.
    :param at: ISO 8601, UTC.
    :param cluster: the own name of the cluster to which its address led.
    :param namespaces: those that the group uses, as the last move named them.
    :param run: the move that has led the clients to this cluster; empty where none has.
    """

    group: str
    version: int
    document: ConnectionDocument
    cluster: str
    by: str
    at: str
    why: str = ""
    namespaces: tuple[str, ...] = ()
    run: str = ""

    def text(self) -> str:
        """Where the clients are led, since when and by whom, as a clause."""
        by = f" (run {self.run})" if self.run else ""
        return (
            f"the clients of {self.group} are led to {self.cluster} by version {self.version}, of {self.by} at "
            f"{self.at}{by}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader(Document):
    """A host that has read the document of a group from Airflow's server.

    :param host: its address; that of a proxy, where one is between.
    :param at: the last time, in seconds since 1970.
    """

    host: str
    at: float


class ConnectionDocuments:
    """The documents in one folder, which every process that publishes has mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def folder(self) -> str:
        """Where they are."""
        return str(self._root)

    @classmethod
    def open(cls, folder: str = "") -> Self:
        """Open the folder (default PULSAR_FLEET_CLIENTS, else one beside the ledger); nothing is created."""
        chosen = (folder or os.environ.get(CLIENTS_VARIABLE) or str(default_home() / "clients")).removeprefix("file://")
        if "://" in chosen:
            raise InvalidRequest(
                f"{CLIENTS_VARIABLE} {chosen!r} is not a folder: a bucket cannot refuse the second of two who publish "
                "at once. Name a folder, and copy it into the bucket."
            )
        return cls(Path(chosen))

    def groups(self) -> list[str]:
        """Every group that has a document, by name."""
        if not self._root.is_dir():
            return []
        return sorted(
            path.parent.name for path in self._root.glob(f"*/{_PUBLISHED}") if GROUP.fullmatch(path.parent.name)
        )

    def published(self, group: str) -> Publication | None:
        """The version that clients have been given last; None if the group has none. What a person has written into
        the file that clients read is no version."""
        path = self._root / require_group(group) / _PUBLISHED
        return _read(path) if path.exists() else None

    def history(self, group: str) -> list[Publication]:
        """Every recorded version that can be read, the newest first; the first one may not have been published."""
        versions: list[Publication] = []
        for number in sorted(self._numbers(group), reverse=True):
            try:
                versions.append(_read(self._record(group, number)))
            except InvalidRequest:
                # It is damaged: that must not keep anybody from moving the group.
                continue
        return versions

    def namespaces(self, group: str) -> tuple[str, ...]:
        """Those that a group uses, as its last version says that can be read."""
        return next((one.namespaces for one in self.history(group)), ())

    def current(self, group: str) -> Publication | None:
        """As `published`; None also where its files are damaged, so that it can be published again."""
        try:
            return self.published(group)
        except InvalidRequest:
            return None

    def latest(self, group: str) -> Publication | None:
        """What clients follow; where nobody can read that, the newest version that can be read."""
        # Not a version that a process recorded which died before it published it.
        return self.current(group) or next(iter(self.history(group)), None)

    def has_moved(self, group: str, run: str) -> bool:
        """Whether a run has led the clients of a group."""
        return any(one.run == run for one in self.history(group))

    def newest(self, group: str) -> int:
        """The number of the newest recorded version, 0 without one; for `publish`."""
        return max(self._numbers(group), default=0)

    def note_reader(self, group: str, host: str) -> None:
        """Note that a host has read; at most once in 5 s, and a folder that cannot be written is left alone."""
        folder = self._root / require_group(group) / _READERS
        mark, now = folder / host, time.time()
        if not _HOST.fullmatch(host) or host.startswith("."):
            return
        with contextlib.suppress(OSError):
            if mark.exists():
                if now - mark.stat().st_mtime >= _READ_SECONDS:
                    os.utime(mark)
                return
            folder.mkdir(exist_ok=True)
            marks = list(folder.iterdir())
            for old in marks:
                if now - old.stat().st_mtime > _KEPT_SECONDS:
                    old.unlink(missing_ok=True)
            if len(marks) < _MOST_READERS:
                mark.touch()

    def readers(self, group: str) -> list[Reader]:
        """Who has read from Airflow's server within a day, the last one first; not who reads the file otherwise."""
        found: list[Reader] = []
        with contextlib.suppress(OSError):
            marks = (self._root / require_group(group) / _READERS).iterdir()
            found = [Reader(host=mark.name, at=mark.stat().st_mtime) for mark in marks]
        return sorted(found, key=lambda reader: -reader.at)

    def problem(self, group: str) -> str:
        """Why clients may read something else than what was published last; empty where they do not."""
        published, path, newest = self.published(group), self._root / f"{group}.json", self.newest(group)
        unpublished = (
            f"Version {newest} of {group} was recorded and not published: somebody publishes it now, or a process "
            f"died, and clients follow {f'version {published.version}' if published else 'none'}. Run clients set with "
            f"the cluster where {group} belongs."
        )
        if published is None:
            return unpublished if newest else ""
        try:
            served = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            served = f"nothing that can be read ({type(error).__name__})"
        if served != published.document.to_json():
            return (
                f"Clients that read {path.name} find {served}, which is not what was published last: somebody has "
                f"changed it, or a process died. Run clients set with the cluster where {group} belongs."
            )
        return unpublished if newest != published.version else ""

    def publish(
        self,
        group: str,
        document: ConnectionDocument,
        *,
        cluster: str,
        by: str,
        why: str,
        expected: int,
        namespaces: tuple[str, ...] = (),
        run: str = "",
    ) -> Publication:
        """Record the next version, then give it to clients.

        :param namespaces: of the group; none: those of the version before.
        :param run: the move; none: that of the version before, where it leads to the same cluster.
        :param expected: what `newest` said when the caller decided.
        :raises PreconditionFailed: somebody else has recorded a version meanwhile; nothing was changed.
        :raises InvalidRequest: the document is not valid, or the folder cannot be written.
        """
        document.require_valid()
        folder = self._root / require_group(group)
        with self._writing(group), self._alone(folder):
            if self.newest(group) != expected:
                raise PreconditionFailed(
                    f"Somebody else has published a document of {group} meanwhile: nothing was changed. Look again: "
                    f"pulsar-fleet clients show {group}."
                )
            at = datetime.now(UTC).isoformat(timespec="seconds")
            before = self.latest(group)
            kept = before.run if before and before.cluster == cluster else ""
            made = Publication(
                group=group,
                version=expected + 1,
                document=document,
                cluster=cluster,
                by=by,
                at=at,
                why=why,
                namespaces=namespaces or (before.namespaces if before else ()),
                run=run or kept,
            )
            # All are written before the first one counts: a disk that is full leaves clients where they are.
            contents = {
                self._record(group, made.version): made.to_json(),
                folder / _PUBLISHED: made.to_json(),
                self._root / f"{group}.json": document.to_json(),
            }
            with contextlib.ExitStack() as drafts:
                for path, content in contents.items():
                    # Also of a draft that a full disk has cut.
                    drafts.callback(_draft_of(path).unlink, missing_ok=True)
                    _draft(path, content)
                for path in contents:
                    _replace(path)
            if self.published(group) != made or self.problem(group):
                raise InvalidRequest(
                    f"Version {made.version} of {group} was written and reads otherwise: look at it with pulsar-fleet "
                    f"clients show {group}, and at the disk of {self._root}."
                )
        return made

    def _numbers(self, group: str) -> list[int]:
        folder = self._root / require_group(group)
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [int(match[1]) for name in names if (match := _VERSION.fullmatch(name))]

    def _record(self, group: str, version: int) -> Path:
        return self._root / group / f"{version:06}.json"

    @contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """One process at a time publishes for a group; a second one waits. Who may write into the folder of all groups
        may publish for each of them, and everybody may read, whatever the umask of who came first."""
        if not self._root.exists():
            self._root.mkdir(parents=True)
            self._root.chmod(_FOLDER)
        shared = self._root.stat().st_mode & (stat.S_IWGRP | stat.S_ISGID)
        folder.mkdir(exist_ok=True)
        with (folder / ".lock").open("a") as lock:
            # Only its owner can, and has done it before.
            with contextlib.suppress(PermissionError):
                for path in (folder, Path(lock.name)):
                    os.chown(path, -1, self._root.stat().st_gid)
                folder.chmod(_FOLDER | shared)
                Path(lock.name).chmod(_READABLE | (shared & stat.S_IWGRP))
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _writing(self, group: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InvalidRequest(
                f"The connection document of {group} under {self._root} cannot be written: {error.strerror or error}. "
                f"Let this process write there. What clients read: pulsar-fleet clients show {group}."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Where the clients of a group are led.

    :param origin: own name of the cluster that they left last; empty where no version says it.
    :param is_away: a run has led them to another cluster than that where its chain of returns began.
    :param is_final: a migration has ended since that they can return, for a namespace at least; `is_complete`: for all.
    """

    published: Publication
    readers: Sequence[Reader] = ()
    origin: str = ""
    is_away: bool = False
    is_final: bool = False
    is_complete: bool = False

    @property
    def can_return(self) -> bool:
        """Whether what they write has to come back to the cluster that they left."""
        return self.is_away and bool(self.origin) and not self.is_final


def followed_groups(ledger: Ledger) -> list[Followed]:
    """Every group; without those whose files are damaged, and none without a folder that can be read."""
    with contextlib.suppress(InvalidRequest, OSError):
        documents = ConnectionDocuments.open()
        published = [one for group in documents.groups() if (one := documents.current(group))]
        return [_followed(documents, one, ledger) for one in published]
    return []


def returnable_groups(ledger: Ledger) -> tuple[Followed, ...]:
    """Those of `followed_groups` whose applications can return."""
    return tuple(group for group in followed_groups(ledger) if group.can_return)


def _followed(documents: ConnectionDocuments, published: Publication, ledger: Ledger) -> Followed:
    history = documents.history(published.group)
    led_at = _led_here(published, history).at
    # A run of another ledger counts as a move: then somebody looks whether its applications can return.
    is_away = bool(published.run) and first_move(ledger, published.run)[1]
    ended = [_is_ended(ledger, name, led_at) for name in published.namespaces]
    return Followed(
        published=published,
        readers=documents.readers(published.group),
        origin=next((one.cluster for one in _earlier(published, history) if one.cluster != published.cluster), ""),
        is_away=is_away,
        is_final=any(ended),
        is_complete=bool(ended) and all(ended),
    )


def _earlier(published: Publication, history: Sequence[Publication]) -> Iterator[Publication]:
    """The versions before this one, the newest first."""
    return (one for one in history if one.version < published.version)


def _led_here(published: Publication, history: Sequence[Publication]) -> Publication:
    """The version since which clients are led to its cluster: this one may only have given it another address."""
    same = itertools.takewhile(lambda one: one.cluster == published.cluster, _earlier(published, history))
    return [published, *same][-1]


def _is_ended(ledger: Ledger, namespace: str, led_at: str) -> bool:
    """Whether a migration has ended the other cluster for the namespace since clients are led here."""
    try:
        since = utc(datetime.fromisoformat(led_at))
    except ValueError:
        # Of a record that somebody has changed it is not known.
        return False
    entry = ledger.newest_phase(namespace, _ENDS)
    return entry is not None and utc(entry.at) >= since


def first_move(ledger: Ledger, run_id: str) -> tuple[RecordedRun | None, bool]:
    """The run with which a chain of returns began, and whether clients are where that run has led them."""
    recorded = ledger.run(run_id)
    if recorded is None or recorded.procedure != RETURN:
        return recorded, True
    first, is_there = first_move(ledger, str(recorded.conf.get("run") or ""))
    return first, not is_there


def publications() -> list[Publication]:
    """The last readable version of each group; none without a folder that can be read."""
    with contextlib.suppress(InvalidRequest, OSError):
        documents = ConnectionDocuments.open()
        return [one for group in documents.groups() if (one := documents.latest(group))]
    return []


def led_since(cluster: str, namespaces: Collection[str], published: Iterable[Publication]) -> int:
    """Since when applications of these namespaces have been led to a cluster without a break, in ms since 1970.

    The latest of several groups; 0 where none is led there.
    """
    began = 0
    for one in published:
        if one.cluster == cluster and not {*namespaces}.isdisjoint(one.namespaces):
            led = _led_here(one, ConnectionDocuments.open().history(one.group))
            began = max(began, int(datetime.fromisoformat(led.at).timestamp() * 1000))
    return began


def require_led_from(cluster: str, namespaces: Collection[str], published: Iterable[Publication]) -> None:
    """Refuse to end a cluster for applications that a document leads there.

    :param cluster: its own name.
    """
    for one in published:
        if one.cluster == cluster and (used := sorted({*namespaces}.intersection(one.namespaces))):
            raise PreconditionFailed(
                f"{one.text()}, and use {used[0]}: nothing was terminated there. Move them first (move_clients); "
                "then clear this task. Or end this run and undo it (abort)."
            )


def _read(path: Path) -> Publication:
    try:
        return Publication.from_bytes(path.read_bytes())
    except (OSError, ValueError, InvalidRequest) as error:
        raise InvalidRequest(
            f"{path} is not a record of a connection document ({type(error).__name__}). Clients of Airflow's server "
            "stay where they are. Run clients set with the cluster where the group belongs."
        ) from error


def _draft(path: Path, document: JsonObject) -> None:
    """Write beside a file what is to take its place, for readers of any user."""
    draft = _draft_of(path)
    with draft.open("w") as file:
        file.write(f"{json.dumps(document, indent=1)}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.chmod(_READABLE)


def _replace(path: Path) -> None:
    _draft_of(path).replace(path)


def _draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.new")
