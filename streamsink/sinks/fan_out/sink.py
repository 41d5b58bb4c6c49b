"""One query into several destinations of different kinds, each exactly once. Driver only.

The rows of a batch are computed once. One record names what each destination is given; from then on each of them will
have it. See docs/FAN_OUT.md.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from streamsink.errors import Misuse
from streamsink.events import Event
from streamsink.journal.file_journal import FileJournal
from streamsink.options import CommitOptions, LockOptions, SinkOptions, TableOptions
from streamsink.protocol.committable import AppState, Batch, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.ids import check_application
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import OpenSink, Sink, check_supported
from streamsink.protocol.upkeep import CareOfAll
from streamsink.sinks.fan_out.branch import Branch
from streamsink.sinks.fan_out.committer import FanOutCommitter
from streamsink.sinks.fan_out.journal import FanOutJournal
from streamsink.sinks.fan_out.lagging import LaggingBranch
from streamsink.sinks.fan_out.membership import Membership
from streamsink.sinks.fan_out.parts import named, parts_of, payload_of
from streamsink.sinks.fan_out.ways import way_on_without_the_journal
from streamsink.sinks.fan_out.writing import FanOutGroup, FanOutWriting, Written
from streamsink.sinks.files import open_folder
from streamsink.sinks.transactions.sink import TwoPhaseCommitSink
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import DATABASES, Store, journal_place, one_spelling, table_path

# What a destination may be given for itself. All else is of the query.
_OF_ONE = frozenset(
    {declared.name for group in (TableOptions, CommitOptions, LockOptions) for declared in dataclasses.fields(group)}
    | {"application", "target_file_bytes", "max_open_writers", "writer_memory_bytes"}
    | {"maintenance", "maintenance_interval_ms", "catalog"}
)


@dataclass(frozen=True)
class FanOut(Sink):
    """Several destinations, each with a name of the user's.

    sinks: the destinations, by name. journal: the place of the record that they share, as sinks in Flink's form take
    it; it is how messages call the fan-out. Sinks of that form which have no journal of their own get a folder in it.
    options: by name of a destination, options of its own: those that say how a table is made, committed, locked and
    registered, sizes of files, and ``application``, where the destination shall know the query under another name.
    may_lag: by name of a destination that may stay behind when it fails, how many records may be pending for it when a
    batch begins.
    """

    sinks: Mapping[str, Sink]
    journal: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    may_lag: Mapping[str, int] = field(default_factory=dict)
    path: str = field(init=False, default="", compare=False)
    # Two sinks for Paimon tables are equal wherever their tables are.
    _places: tuple[str, ...] = field(init=False, default=(), repr=False)

    def __post_init__(self) -> None:
        self._check_types()
        if not self.journal or len(self.sinks) < 1:
            self._refuse(f"journal is {self.journal!r}, and there are {len(self.sinks)} destinations; give both")
        place = journal_place(self.journal)
        object.__setattr__(self, "journal", place)
        object.__setattr__(self, "path", place)
        object.__setattr__(self, "sinks", {name: self._with_journal(sink) for name, sink in self.sinks.items()})
        object.__setattr__(self, "_places", tuple(sink.path for sink in self.sinks.values()))
        for name, sink in self.sinks.items():
            if not isinstance(name, str) or not name:
                self._refuse(f"a destination has the name {name!r}, expected a text")
            if isinstance(sink, FanOut):
                self._refuse(f"the destination '{name}' is a fan-out itself; name its destinations here")
            if not sink.journal and sink.path != table_path(sink.path):
                self._refuse(f"the destination '{name}' has the path {sink.path!r}, expected {table_path(sink.path)!r}")
        for name, given in self.options.items():
            wrong = sorted({*given} - _OF_ONE)
            if name not in self.sinks or wrong:
                self._refuse(
                    f"options has {name!r} with {', '.join(given)}, expected names of destinations "
                    f"({', '.join(self.sinks)}) with any of {', '.join(sorted(_OF_ONE))}"
                )
            check_supported(self.sinks[name], {*given} - {"application"})
        for name, most in self.may_lag.items():
            if name not in self.sinks or not isinstance(most, int) or isinstance(most, bool) or most < 1:
                self._refuse(f"may_lag has {name!r}: {most!r}, expected a destination's name and a number from 1 on")
        self._check_apart({name: self.options.get(name, {}).get("application", "") for name in self.sinks})

    def _check_types(self) -> None:
        for name, given in (("sinks", self.sinks), ("options", self.options), ("may_lag", self.may_lag)):
            if not isinstance(given, Mapping):
                self._refuse(f"{name} is a {type(given).__name__}, expected a dict by names of destinations")
        for name, sink in self.sinks.items():
            if not isinstance(sink, Sink):
                self._refuse(
                    f"the destination {name!r} is a {type(sink).__name__}, expected a sink such as "
                    "streamsink.sink.PaimonTable('/path/of/a/table')"
                )
        for name, own in self.options.items():
            if not isinstance(own, Mapping):
                self._refuse(f"options has {name!r} with a {type(own).__name__}, expected a dict of options")

    def _with_journal(self, sink: Sink) -> Sink:
        is_database = self.journal.partition(":")[0] in DATABASES
        if sink.journal or not isinstance(sink, TwoPhaseCommitSink) or is_database:
            return sink
        # By the destination and not by its name or number, which may change.
        own = hashlib.sha256(sink.path.encode()).hexdigest()[:16]
        return cast(Sink, replace(cast(Any, sink), journal=f"{self.journal}/destinations/{own}"))

    def _check_apart(self, applications: Mapping[str, str]) -> None:
        """Raises Misuse when two of the destinations are one, or would take each other's records for their own.

        applications: by name of a destination, how it knows the query; '' as the fan-out does.
        """
        for name, sink in self.sinks.items():
            place = journal_place(sink.journal) if sink.journal else table_path(sink.path)
            is_named = bool(sink.journal and applications[name])
            if place == self.journal and not is_named:
                self._refuse_place(name)
        known: dict[tuple[object, ...], str] = {}
        for name, sink in self.sinks.items():
            application = applications[name]
            keys: dict[str, tuple[object, ...]] = {"path": (one_spelling(sink.path),)}
            if hasattr(sink, "writes_to"):  # of databases: the table, whatever the path is called
                keys["table"] = sink.writes_to
            if sink.journal:
                keys["journal"] = one_spelling(journal_place(sink.journal)), application
            if hasattr(sink, "marker_topic"):  # of Kafka: the names of transactions and markers
                keys["markers"] = getattr(sink, "bootstrap_servers", ""), application
            for what, key in keys.items():
                other = known.setdefault((what, *key), name)
                if other != name:
                    raise self._shared(what, other, name, str(key[0]) if what in ("journal", "markers") else sink.path)

    def _shared(self, what: str, other: str, name: str, shown: str) -> Misuse:
        """The error for two destinations that share something. what: that. shown: what it is."""
        way_out = f"another {what}"
        if what in ("journal", "markers"):
            way_out = f"another name: options={{'{name}': {{'application': '...'}}}}"
        return Misuse(
            f"{self.path}: the destinations '{other}' and '{name}' share the {what} {shown}, so each would take what "
            "the other has for its own. Nothing was written. If they are one destination, name it once; else give one "
            f"of them {way_out}",
            kind="fan-out.same-destination",
        )

    @property
    def never_forgets(self) -> str:  # type: ignore[override]  # nobody sets what the contract names
        """As of ``Sink``; what one of the destinations cannot, all of them cannot."""
        kept = {name: sink.never_forgets for name, sink in self.sinks.items() if sink.never_forgets}
        return next((f"of its destination '{name}', {why}" for name, why in kept.items()), "")

    def _refuse_place(self, name: str) -> None:
        self._refuse(
            f"its journal has the place in which the destination '{name}' keeps its own journal, or its rows; give the "
            "fan-out a journal in another folder"
        )

    def _refuse(self, found: str) -> None:
        raise Misuse(
            f"FanOut({self.journal}): {found}. Nothing was written. Correct the fan-out", kind="fan-out.option"
        )

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[Event], None],
    ) -> "OpenFanOut":
        if self.may_lag and options.publishes_later:
            self._refuse("may_lag is given, and publish or publish_every_batches; leave one of them out")
        mine = {
            name: SinkOptions.of(sink.path, self.options.get(name, {}), options) for name, sink in self.sinks.items()
        }
        self._check_apart({name: own.application for name, own in mine.items()})  # the query's may be one of these
        branches, stores, known = list[Branch](), [], self._known_paths(file_io, options)
        for name, sink in self.sinks.items():
            own = mine[name]
            check_application(sink.path, own.application)
            store = self._store(sink, own)
            its_io = file_io if store is None else store.open()
            # A table that joins is made in the middle of the query; whether it may begin there is asked later.
            joins = own if sink.path in known else replace(own, adopt_from_batch=batch.batch_id)
            if not options.create:  # a command looks, whatever the query may do
                joins = replace(joins, create=False)
            opened = sink.open(its_io, joins, batch, fields, emit)
            of = name, opened, its_io, own, emit
            branches.append(LaggingBranch(*of, most=self.may_lag[name]) if name in self.may_lag else Branch(*of))
            stores.append(store)
        return OpenFanOut(self, file_io, options, branches, tuple(stores))

    def places(self, file_io: FileIO, options: SinkOptions) -> list[tuple[str, str, FileIO]]:
        """As of ``commands.own_sinks.Composed``."""
        found = []
        for name, sink in self.sinks.items():
            own = SinkOptions.of(sink.path, self.options.get(name, {}), options)
            store = self._store(sink, own)
            place = journal_place(sink.journal) if sink.journal else sink.path
            found.append((name, place, file_io if store is None else store.open()))
        return found

    def _known_paths(self, file_io: FileIO, options: SinkOptions) -> set[str]:
        """Those of the destinations that the newest record names."""
        journal = FileJournal(file_io, self.journal, options.application, options.journal_retain)
        with way_on_without_the_journal(self.journal, options.application, journal.place):
            newest = journal.newest()
        return {part.path for part in parts_of(newest).values()} if newest is not None else set()

    def _store(self, sink: Sink, options: SinkOptions) -> Store | None:
        """The store of a destination; None where it is that of the journal."""
        root = journal_place(sink.journal) if sink.journal else sink.path
        same = _authority(root) == _authority(self.journal)
        return None if same else Store(root, options.store_options, options.flush)


class OpenFanOut(OpenSink):
    """The destinations of one start of a query."""

    journal: FanOutJournal

    def __init__(
        self,
        sink: FanOut,
        file_io: FileIO,
        options: SinkOptions,
        branches: Sequence[Branch],
        stores: tuple[Store | None, ...],
    ):
        self._io, self._branches, self._stores = file_io, branches, stores
        self.application = self.known_as = options.application
        self.is_distant = any(branch.opened.is_distant for branch in branches)
        self.parts = [branch.opened for branch in branches]
        self.care = CareOfAll([part.care for part in self.parts])
        place = sink.journal
        file_io.sweep_probes()
        self.to = open_folder(file_io, place, visible="commits")
        self.journal = FanOutJournal(file_io, place, options.application, options.journal_retain, branches)
        for branch in (branch for branch in branches if branch.journal.place == self.journal.place):
            sink._refuse_place(branch.name)
        self._check_identities()
        self._membership = Membership(branches, options, self.journal.is_marked, self.journal.place)
        self.committer = FanOutCommitter(self.to, self.journal, branches, self._membership, file_io=file_io)

    def _check_identities(self) -> None:
        """Raises Misuse when two paths lead to one destination, or when one of the journals is that of another."""
        known: dict[str, str] = {}
        for branch in self._branches:
            for key in (f"the id {branch.to.table_id}", f"the journal {branch.journal.place}"):
                other = known.setdefault(key, branch.name)
                if other != branch.name:
                    raise Misuse(
                        f"{self.to.path}: the destinations '{other}' and '{branch.name}' ({branch.to.path}) both have "
                        f"{key}: they are one destination, or one is a copy of the other. Nothing was written. Name "
                        "one of them only",
                        kind="fan-out.same-destination",
                    )

    def joining(self) -> Iterator[tuple[Branch, AppState, str]]:
        """As of ``Membership``, for who looks without a start."""
        return self._membership.joining(self.to, self.journal.newest())

    def group(self) -> AbstractContextManager[Group]:
        return FanOutGroup(self._io.flush_group(), [branch.opened.group() for branch in self._branches])

    def writing(self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]) -> FanOutWriting:
        if checkpoint.decision.leads_on:
            raise Misuse(
                f"{self.to.path}: the query was called '{checkpoint.decision.leads_on[0]}' before, and a fan-out keeps "
                f"its name. Nothing of this batch was written. Set application='{checkpoint.decision.leads_on[0]}'",
                kind="fan-out.renamed",
            )
        writings = [
            branch.opened.writing(branch.checkpoint(checkpoint), fields, positions) for branch in self._branches
        ]
        return FanOutWriting(tuple(writings), self._stores)

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[Written], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        together = cast(FanOutGroup, group)
        parts = []
        for number, branch in enumerate(self._branches):
            mine = branch.checkpoint(checkpoint)
            own = [item for of, item in written if of == number]
            parts.append(branch.part(mine, *branch.opened.stage(mine, own, together.of(number))))
        return named(parts), payload_of(parts)


def _authority(root: str) -> str:
    """What two paths have in common that are in one store."""
    if root.partition(":")[0] in DATABASES:
        return root
    scheme, found, rest = root.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if found else ""
