"""What datasets are called: OpenLineage's rules of naming, for sources and destinations of a query. Pure.

Two programs that name one dataset in the same way are joined to one graph by whoever collects the events, so the rules
are those of the specification ("Naming Conventions"), and nothing here is chosen but where they say nothing.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from streamsink.protocol.sink import Sink
from streamsink.sinks.databases.address import parse
from streamsink.sinks.databases.sink import DatabaseSink
from streamsink.sinks.fan_out.sink import FanOut
from streamsink.sinks.iceberg.sink import IcebergSink
from streamsink.sinks.kafka.sink import KafkaSink
from streamsink.sinks.paimon.opening import PaimonTables, PaimonTableWithLetters

_S3 = ("s3", "s3a", "s3n")
# Stores whose names of objects do not begin with a slash.
_OBJECTS = (*_S3, "gs")
# How the path of a folder begins, which says by itself what dataset it is.
_STORES = ("/", "file:", "hdfs://", *(f"{scheme}://" for scheme in _OBJECTS))
_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_PATTERN = re.compile(r"[*?\[{]")
_LAYERS = {"PaimonTable": "paimon", "PaimonTableWithLetters": "paimon", "IcebergSink": "iceberg", "DeltaSink": "delta"}


class DatasetName(NamedTuple):
    """A dataset, as all producers of events are to call it."""

    namespace: str
    name: str


def of_path(path: str) -> DatasetName:
    """The dataset at a path, or at the URL of a store; anything else is a name of streamsink's own.

    "/lake/t" and "file:/lake/t" are ("file", "/lake/t"); "s3a://b/lake/t" is ("s3://b", "lake/t"); "hdfs://h:9000/t" is
    ("hdfs://h:9000", "/t").
    """
    scheme, mark, rest = path.partition("://")
    if not mark:
        plain = path.removeprefix("file:")
        return DatasetName("file" if plain.startswith("/") else "streamsink", plain)
    authority, slash, below = rest.partition("/")
    if scheme == "file":
        return DatasetName(f"file://{authority}" if authority else "file", f"/{below}")
    scheme = "s3" if scheme in _S3 else scheme
    name = below.rstrip("/") or "/" if scheme in _OBJECTS else f"{slash}{below}" or "/"
    return DatasetName(f"{scheme}://{authority}", name)


def of_folder(folder: str) -> DatasetName:
    """The dataset that a source of files reads. A pattern counts up to the last folder that has none in its name."""
    plain = _PATTERN.search(folder)
    return of_path((folder[: plain.start()].rpartition("/")[0] if plain else folder).rstrip("/") or folder)


def of_topic(servers: str, topic: str) -> DatasetName:
    """A topic of the cluster with these servers: the first of them names the cluster, as the specification has it."""
    return DatasetName(f"kafka://{servers.split(',')[0].strip()}", topic)


def of_sink(sink: Sink) -> DatasetName | None:
    """The dataset that a sink writes; None where its events alone name the datasets, as those of several tables do."""
    if isinstance(sink, DatabaseSink):
        return _of_database(sink)
    if isinstance(sink, KafkaSink):
        return None if sink.topic is None else of_topic(sink.bootstrap_servers, sink.topic)
    if isinstance(sink, IcebergSink):
        return of_path(sink.place) if sink.place else DatasetName(sink.catalog, sink.table)
    return of_path(sink.path)


def _of_database(sink: DatabaseSink) -> DatasetName:
    """A table of SQLite, of which the specification says nothing, is named as its Java client names it."""
    address = parse(sink.url)
    if address.system == "sqlite":
        return DatasetName(address.place, sink.table)
    port = address.port or _PORTS[address.system]
    if address.system == "postgresql":
        named = f"{address.database}.{sink.schema or 'public'}.{sink.table}"
        return DatasetName(f"postgres://{address.host or 'localhost'}:{port}", named)
    return DatasetName(f"mysql://{address.host}:{port}", f"{sink.schema or address.database}.{sink.table}")


class Destinations:
    """The datasets that one query writes, by the paths in its events.

    sink: as the query was given it; None where that is not known. has_all_columns: each dataset gets all columns that
    the query writes.
    """

    def __init__(self, sink: Sink | None, path: str, given: Mapping[str, DatasetName] | None = None):
        """path: of the sink. given: by path, names of the user's choice."""
        self._given = given or {}
        self._one_by_one: dict[str, Sink] = {}
        self._hidden: set[str] = set()
        self._sink, self._path = sink, path
        if isinstance(sink, FanOut):
            self._one_by_one = {each.path: each for each in sink.sinks.values()}
            self._hidden = {path}
        elif isinstance(sink, PaimonTables):
            self._hidden = {path}
        elif sink is not None:
            self._one_by_one = {path: sink}
        self.has_all_columns = not isinstance(sink, (PaimonTables, PaimonTableWithLetters))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the datasets that are known before anything is written."""
        if self._one_by_one:
            return tuple(self._one_by_one)
        return () if self._hidden else (self._path,)

    def name_of(self, path: str) -> DatasetName | None:
        """The dataset at this path; None where the path is that of several, or the sink's datasets are not known."""
        if path in self._given:
            return self._given[path]
        if path in self._hidden:
            return None
        sink = self._one_by_one.get(path)
        if sink is not None:
            return of_sink(sink)
        return of_path(path) if path.startswith(_STORES) else None

    def layer_of(self, path: str) -> str:
        """The format of the table at this path; '' where it is no table of a lake."""
        sink = self._one_by_one.get(path)
        if sink is None:
            return "paimon" if isinstance(self._sink, (PaimonTables, PaimonTableWithLetters)) else ""
        return _LAYERS.get(type(sink).__name__, "")

    def alias_of(self, path: str) -> DatasetName | None:
        """The name of the table in its catalog, where it is known by its place."""
        sink = self._one_by_one.get(path)
        return DatasetName(sink.catalog, sink.table) if isinstance(sink, IcebergSink) and sink.place else None
