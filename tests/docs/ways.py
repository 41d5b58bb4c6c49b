"""How each block of each page is run or checked. A block without a way here fails the tests.

- ``run``: as a reader runs it, in the order of the page (tests/docs/test_stories.py). A block that begins with
  ``# name.py`` is saved under that name.
- ``run with SERVER and SERVER``: the same, where these servers are there: the soak tells the whole page, the gate
  leaves such blocks out. The names are those of fixtures.
- ``in session``: a program that a reader saves; its text is run in the session of the tests.
- ``data``: JSON or YAML, parsed, and checked by what it is.
- ``drawing``: a picture, or what a program prints; it has no command.
- ``by FILE``: a test in that file runs it, or makes the page from the code and compares. Of commands, a test of the
  gate reads each one as its program would, and the test that runs them may be one of the soak.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_README = "by tests/test_package.py"
_COMMANDS = "by tests/cli/test_examples.py"


@dataclass(frozen=True)
class Page:
    """ways: one for each block, in the page's order; '*' after a way repeats it to the end.

    given: the function of tests/docs/given.py that makes what the page takes for granted. replaced: what the page says,
    and what stands there here; ``{folder}`` is the scratch folder, and other names are set by functions of given.py.
    steps: by the place of a block, the function of given.py that is called before it. checks: the one of checks.py that
    looks, behind the block, at what it has done. ends: exit codes of commands that find something, by how they begin.
    needs: fixtures of servers, of the whole page. slow: programs of the page start drivers of their own.
    elsewhere: as ``replaced``, in the tests that the ways name.
    """

    ways: tuple[str, ...]
    given: str = "orders_from_files"
    replaced: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[int, str] = field(default_factory=dict)
    checks: Mapping[int, str] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    slow: bool = False
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def of(self, blocks: int) -> list[str]:
        """The ways of so many blocks. Raises ValueError where their number is another one."""
        ways = list(self.ways)
        if ways and ways[-1].endswith("*"):
            last = ways.pop().rstrip("*")
            ways += [last] * (blocks - len(ways))
        if len(ways) != blocks:
            raise ValueError(f"the page has {blocks} blocks, and tests/docs/ways.py has {len(ways)} ways for it")
        return ways


_CHECKPOINTS = {'"/checkpoints': '"{folder}/checkpoints'}
_LAKE = {'"/lake': '"{folder}/lake'}
_RELATIVE = {'"ckpt/': '"{folder}/ckpt/'}
_TOPIC = {"localhost:9092": "{kafka_broker}", '"subscribe", "orders"': '"subscribe", "{topic}"'}
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3"

# The README's commands of make, and the cluster of the guide: with these words they are run.
_MAKE, _CLUSTER = "by tests/docs/test_readme.py", "by tests/e2e/test_cluster.py"
_SMALLER = {
    "make test": "make test ARGS=tests/test_package.py",
    "BROKERS=host:9092 TOPIC=orders": "BROKERS={kafka} TOPIC={topic}",
    "make chaos": "make chaos ARGS='--events 50000'",
    "--metrics 127.0.0.1:9464": "--metrics {address} --events 50000",
    "make bench": "make bench ARGS='--quick --only micro'",
    "doctor PATH": "doctor {table}",
}
_DEPLOYED = {
    "spark://master:7077": "{master}",
    f"--packages {_CONNECTOR},org.apache.hadoop:hadoop-aws:3.4.2": "--jars {jars}",
    "/opt/streaming/bin/python": "{python}",
    "s3a://bucket/lake": "{warehouse}",
    "broker:9092": "{kafka}",
    "--topic orders": "--topic {topic} --until-caught-up {options}",
}

PAGES = {
    "README.md": Page(("drawing", _MAKE, _MAKE, _README), elsewhere=_SMALLER),
    "docs/ACCIDENTS.md": Page(
        ("by tests/docs/test_accidents_page.py*",), elsewhere={"HOST:PORT OTHER:PORT": "{first} {second}"}
    ),
    "docs/API.md": Page(("by tests/docs/test_api_page.py*",)),
    "docs/BRANCHES.md": Page(("by tests/compat/test_branches_page.py*",)),
    "docs/CATALOGS.md": Page(
        ("run",),
        replaced={"metastore:9083": "{metastore}", "lake/shop.db": "lake/{database}.db"},
        given="orders_for_a_metastore",
        checks={0: "both_are_in_the_metastore"},
        needs=("hive_metastore",),
    ),
    "docs/CLI.md": Page((f"{_COMMANDS}*",)),
    "docs/COMPACTION.md": Page(("run", "run"), given="a_table_of_orders"),
    "docs/DATABASES.md": Page(
        ("run",),
        replaced={"db:5432/shop": "{postgres}", '"sink"': '"{postgres_user}"', **_CHECKPOINTS, **_LAKE},
        given="orders_for_postgres",
        needs=("postgres",),
    ),
    "docs/DELTA.md": Page(("run",), replaced={**_CHECKPOINTS, **_LAKE}),
    "docs/FAN_OUT.md": Page(
        ("run",),
        replaced={
            "postgresql://db:5432/shop": "sqlite:{folder}/shop.db",
            ', user="writer"': ", create_table=True",
            '"/exports': '"{folder}/exports',
            **_CHECKPOINTS,
            **_LAKE,
        },
    ),
    "docs/FILES.md": Page(("run", "by tests/sinks/test_file_sink_accidents.py"), replaced={**_CHECKPOINTS, **_LAKE}),
    "docs/GUIDE.md": Page(
        ("run", "run with kafka_broker", "run", "run with hdfs_cluster and s3_server", _CLUSTER, "run"),
        replaced={
            '"in/"': '"{folder}/in"',
            "broker:9092": "{kafka_broker}",
            '"subscribe", "orders"': '"subscribe", "{topic}"',
            "hdfs://namenode:8020": "{hdfs}",
            "s3://bucket": "{s3}",
            "https://s3.example.com": "{s3_endpoint}",
            " WORD": " {word}",
            **_RELATIVE,
        },
        steps={
            1: "a_topic_whose_checkpoint_is_lost",
            2: "a_lake_that_is_empty",
            3: "stores_with_keys",
            5: "a_dead_driver_and_letters",
        },
        checks={
            0: "each_row_goes_to_its_table",
            1: "no_message_is_read_twice",
            2: "a_batch_of_old_and_new_files",
            3: "each_store_has_the_orders",
            5: "nothing_is_left_to_mend",
        },
        ends={"streamsink doctor": 1, "streamsink report": 1},
        elsewhere=_DEPLOYED,
    ),
    "docs/ICEBERG.md": Page(
        ("run",),
        replaced={
            "postgresql+psycopg://db/catalog": "sqlite:///{folder}/catalog.db",
            "s3://lake/tables": "{folder}/warehouse",
            **_CHECKPOINTS,
        },
        given="orders_for_iceberg",
    ),
    "docs/ICEBERG_METADATA.md": Page(("run",)),
    "docs/KAFKA_SINK.md": Page(
        ("run",),
        replaced={"broker:9092": "{kafka_broker}", 'topic="orders"': 'topic="{topic}"', **_CHECKPOINTS, **_LAKE},
        given="orders_for_kafka",
        needs=("kafka_broker",),
    ),
    "docs/LINEAGE.md": Page(("by tests/lineage/test_page.py",)),
    "docs/LOCKS.md": Page(("run",)),
    "docs/MAINTENANCE.md": Page(("run", "run"), given="a_table_of_orders"),
    "docs/METRICS.md": Page(
        ("by tests/metrics/test_page.py", "run", "data", "by tests/metrics/test_page.py"), checks={1: "it_prints_paths"}
    ),
    "docs/PROTOCOL.md": Page(("drawing", "drawing")),
    "docs/REPORT.md": Page(
        ("run", "run with s3_server"),
        given="a_table_of_orders",
        replaced={"s3://bucket": "{s3}", "https://s3.example.com": "{s3_endpoint}"},
        steps={1: "a_table_on_s3"},
        checks={0: "a_page_is_written", 1: "a_page_of_the_table_on_s3"},
    ),
    "docs/TRACES.md": Page(("by tests/traces/test_page.py*",)),
    "docs/TROUBLESHOOTING.md": Page(
        ("run", "run"), given="a_dead_driver", checks={1: "each_order_is_there"}, ends={"streamsink doctor": 1}
    ),
    "docs/TUTORIAL.md": Page(("by tests/docs/test_tutorial.py*",)),
    "docs/TWO_PHASE_COMMIT_SINK.md": Page(
        ("run", "run", "by tests/sinks/test_two_phase_commit_sink.py"), replaced={**_CHECKPOINTS, **_LAKE}
    ),
    "docs/WRITING_A_SINK.md": Page(
        ("run", "run", "by tests/sinks/test_conformance.py"), replaced={**_CHECKPOINTS, **_LAKE}
    ),
    "docs/how-to/AIRFLOW.md": Page(
        ("run", "run", "run", "by tests/docs/test_airflow.py"), given="a_day_of_orders", slow=True
    ),
    "docs/how-to/BACKFILL.md": Page(
        ("run*",), given="an_archive", replaced={'"archive/orders"': '"{folder}/archive/orders"'}
    ),
    "docs/how-to/CHANGE_SCHEMA.md": Page(
        ("run*",), given="a_stream_of_orders", steps={0: "ten_more"}, replaced=_RELATIVE
    ),
    "docs/how-to/DEAD_LETTERS.md": Page(("run*",), replaced=_RELATIVE),
    "docs/how-to/KAFKA_TO_LAKE.md": Page(
        ("in session", "by tests/docs/test_kafka_to_lake.py", "run"),
        given="a_topic_of_orders",
        replaced={**_TOPIC, 'processingTime="10 seconds"': "availableNow=True", **_RELATIVE},
        needs=("kafka_broker",),
        elsewhere={**_TOPIC, f"--packages {_CONNECTOR}": "{packages}"},
    ),
    "docs/how-to/KUBERNETES.md": Page(("by tests/e2e/test_kubernetes.py*",)),
    "docs/how-to/MOVE_OR_COPY.md": Page(
        ("run", "run"),
        given="a_stream_of_orders",
        steps={1: "ten_more"},
        replaced={'"new/ckpt/': '"{folder}/new/ckpt/'},
    ),
    "docs/how-to/RESTORE_BACKUP.md": Page(("run*",), given="a_backup_and_more_orders", replaced=_RELATIVE),
    "docs/how-to/UPGRADE.md": Page(("run", "by tests/docs/test_upgrade.py"), given="a_stream_of_orders"),
    "docs/how-to/YARN.md": Page(("by tests/e2e/test_yarn.py*",)),
}
NONE = Page(())


def ways_of(page: str, blocks: int) -> list[str]:
    """Raises ValueError, which says what to add, where a block has no way or a way has no block."""
    try:
        return PAGES.get(page, NONE).of(blocks)
    except ValueError as error:
        raise ValueError(f"{page}: {error}; say there how each one is run or checked") from None


def is_run(way: str) -> bool:
    """Whether tests/docs/test_stories.py runs it."""
    return way in ("run", "in session") or bool(servers_of(way))


def servers_of(way: str) -> tuple[str, ...]:
    """The servers that a block needs, of a way that names some."""
    named = re.fullmatch(r"run with (.+)", way)
    return tuple(named[1].split(" and ")) if named else ()


def file_of(way: str) -> str | None:
    """The test that runs the block, of a way that names one."""
    named = re.fullmatch(r"by (\S+)", way)
    return named[1] if named else None
