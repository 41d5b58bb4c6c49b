"""``SinkOptions``: all options of one query's sink, and what no option can say alone."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from streamsink.errors import Misuse
from streamsink.options.groups import (
    ASYNC,
    MODE_OVERWRITE,
    AdmissionOptions,
    CatalogOptions,
    CommitOptions,
    CompactionOptions,
    IdentityOptions,
    LockOptions,
    MaintenanceOptions,
    PublishingOptions,
    RestartOptions,
    StoreOptions,
    TableOptions,
    WritingOptions,
)
from streamsink.options.option import check_declared, check_texts, names_of, refuse

# In the order in which docs/OPTIONS.md has them.
GROUPS = (
    IdentityOptions,
    TableOptions,
    WritingOptions,
    AdmissionOptions,
    RestartOptions,
    PublishingOptions,
    MaintenanceOptions,
    CompactionOptions,
    CommitOptions,
    LockOptions,
    CatalogOptions,
    StoreOptions,
)


@dataclass(frozen=True)
class SinkOptions(
    StoreOptions,
    CatalogOptions,
    LockOptions,
    CommitOptions,
    CompactionOptions,
    MaintenanceOptions,
    PublishingOptions,
    RestartOptions,
    AdmissionOptions,
    WritingOptions,
    TableOptions,
    IdentityOptions,
):
    """Settings of one query's sink: the sum of the groups in ``options/groups.py``, where each option is described."""

    @classmethod
    def of(cls, table: str, given: Mapping[str, Any], base: "SinkOptions | None" = None) -> "SinkOptions":
        """Options from keyword arguments; those that are not given are as in ``base``, or have their defaults.

        Raises Misuse that names an unknown or ill-typed option.
        """
        if base is not None and not isinstance(base, SinkOptions):
            refuse(table, "options", type(base).__name__, "streamsink.SinkOptions, or keywords of their own")
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise Misuse(
                    f"{table}: there is no option '{name}'; the options are {', '.join(sorted(known))}",
                    kind="option.unknown",
                )
        options = cls(**given) if base is None else replace(base, **given)
        partition_by = names_of(table, "partition_by", options.partition_by)
        position_columns = names_of(table, "position_columns", options.position_columns)
        options = replace(options, partition_by=partition_by, position_columns=position_columns)
        options.check(table)
        return options

    def check(self, table: str) -> None:
        """Raises Misuse that names the table and the first option whose value cannot be."""
        check_declared(table, self)
        check_texts(table, "store_options", self.store_options, of="store")
        check_texts(table, "table_options", self.table_options, of="table")
        check_texts(table, "catalog", self.catalog, of="catalog")
        if self.publish_interval_ms and self.publish_every_batches == 1:
            expected = "0 while publish_every_batches is 1, which publishes every batch; give both"
            refuse(table, "publish_interval_ms", self.publish_interval_ms, expected)
        if self.publish == ASYNC and self.publish_queue < self.publish_every_batches:
            expected = f"at least publish_every_batches, which is {self.publish_every_batches}"
            refuse(table, "publish_queue", self.publish_queue, expected)
        if len(self.position_columns) not in (0, 3):
            refuse(table, "position_columns", self.position_columns, "three column names: topic, partition, offset")
        if self.lock_id is not None and (self.lock_id.count(".") < 2 or "" in self.lock_id.split(".")):
            refuse(table, "lock_id", self.lock_id, "'<catalog-key>.<database>.<table>'")
        adopt = self.adopt_from_batch
        if adopt is not None and (isinstance(adopt, bool) or not isinstance(adopt, int) or adopt < 0):
            refuse(table, "adopt_from_batch", adopt, "a batch id")
        self._check_overwrite(table)

    def _check_overwrite(self, table: str) -> None:
        given = self.overwrite_partition
        if given is not None and (not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given)):
            refuse(table, "overwrite_partition", given, "a dictionary of partition columns and their values")
        if given is not None and self.mode != MODE_OVERWRITE:
            refuse(table, "overwrite_partition", given, "None without mode='overwrite'")
        for name in ("position_columns", "file_column"):
            if getattr(self, name) and self.mode == MODE_OVERWRITE:
                expected = "none with mode='overwrite': the rest of a batch must not replace the whole of it"
                refuse(table, name, getattr(self, name), expected)


def words_of(option: str | None) -> list[str]:
    """Of an option that accepts: it has a word for each question that it answers, with spaces between them."""
    return option.split() if option else []


def with_word(option: str | None, word: str, others: Container[str]) -> str:
    """What such an option must be to answer one question more. others: words that answer others which may be asked
    still.
    """
    return " ".join([*(said for said in words_of(option) if said in others and said != word), word])
