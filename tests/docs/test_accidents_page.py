"""docs/ACCIDENTS.md: its commands repeat the accidents, and what they report is what its table of rows says."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.accidents.ground import RIGHT
from benchmarks.accidents.kafka import Clusters
from benchmarks.accidents.situations import NO_CALL, SITUATIONS
from tests.docs.blocks import text_of
from tests.docs.checkout import Checkout, commands_of, here
from tests.services.kafka import OTHER_CLUSTER_ID, KafkaBroker

PAGE = "docs/ACCIDENTS.md"
MAKE, OLDER = 0, 1
WAIT_S = 5_400
# The page's columns, as the report has them.
COLUMNS = {
    "files": "Spark file sink",
    "Delta": "Delta sink",
    "`txnAppId`": "Delta txnAppId",
    "Iceberg": "Iceberg sink",
    "Hudi": "Hudi sink",
    "Paimon": "Paimon Spark sink",
    "**ours**": "streamsink",
}
DEAD_LETTERS = "streamsink, dead_letters"
Table = dict[tuple[str, str], str]  # by accident and sink


def table_of(text: str, first: str) -> Table:
    """The table whose first heading that is."""
    lines = iter(text.splitlines())
    head = next(line for line in lines if line.startswith(f"| {first} |"))
    columns = [column.strip() for column in head.split("|")[1:-1]]
    assert re.fullmatch(r"[-|]+", next(lines))
    found: Table = {}
    for line in lines:
        if not line.startswith("|"):
            break
        accident, *cells = [cell.strip() for cell in line.split("|")[1:-1]]
        found |= {(accident.replace("`", ""), column): cell for column, cell in zip(columns[1:], cells, strict=True)}
    return found


def on_the_page() -> Table:
    """What the page says, under the report's names."""
    rows = text_of(PAGE).partition("## S14 to S22, in rows")[2]
    said = table_of(rows, "accident")
    found = {(accident, COLUMNS[column]): cell for (accident, column), cell in said.items() if column in COLUMNS}
    for (accident, column), cell in list(found.items()):
        if column == "Delta txnAppId" and cell == "same":
            found[accident, column] = found[accident, "Delta sink"]
        if column == "streamsink" and ";" in cell:
            alone, _, aside = cell.partition("; ")
            found |= {(accident, column): alone, (accident, DEAD_LETTERS): aside.removesuffix(" (1)")}
    return found


def short(cell: str) -> str:
    """A cell of the report in the page's words."""
    before, _, result = cell.rpartition("an ERROR, then ")
    assert before == ""
    told = "E once, " if cell != result else ""
    aside = re.fullmatch(rf"(\d+ dead letters), else {RIGHT}", result)
    if aside:
        return aside[1]
    counted = ", ".join(f"{n} {what[0].upper()}" for n, what in re.findall(r"\*\*(\d+) (lost|doubled)\*\*", result))
    words = {
        RIGHT: "ok",
        "ERROR": "E",
        NO_CALL: "n/a",
        "the driver's JVM ended": "JVM ended",
        "the value became None": "null",
    }
    return told + (counted or words.get(result, result))


def reported(report: Path) -> Table:
    """What a run has found, in the page's words."""
    found = table_of(report.read_text(), "accident")
    return {place: short(cell) for place, cell in found.items() if cell}


def check(checkout: Checkout, accidents: str, sinks: tuple[str, ...]) -> None:
    """The report of the last run has these sinks in these accidents, and says what the page says of them."""
    page = {place: cell for place, cell in on_the_page().items() if place[0].startswith(accidents)}
    expected = {place: cell for place, cell in page.items() if place[1].startswith(sinks)}
    report = checkout.root / "build/accidents/report.md"
    found = reported(report)
    # Where the page says nothing of dead letters, the sink with them does what the one without does.
    more = {place: cell for place, cell in found.items() if place[1] == DEAD_LETTERS and place not in expected}
    expected |= {(accident, DEAD_LETTERS): page[accident, "streamsink"] for accident, _ in more}
    assert found == expected
    assert "**Errors**" in report.read_text()


def test_the_table_has_a_row_for_each_accident_that_is_repeated():
    """And each cell is something that a run can report."""
    page = on_the_page()
    situations = SITUATIONS | Clusters(Path(), ("first:1", "second:1")).situations()
    assert {accident for accident, _ in page} == set(situations)
    assert {column for _, column in page} == {*COLUMNS.values(), DEAD_LETTERS}


@pytest.mark.parametrize(
    ("cell", "page"),
    [
        (RIGHT, "ok"),
        ("ERROR", "E"),
        ("**10 lost** of 20", "10 L"),
        ("**10 lost** and **3 doubled** of 20", "10 L, 3 D"),
        ("an ERROR, then **10 lost** of 40", "E once, 10 L"),
        (f"an ERROR, then {RIGHT}", "E once, ok"),
        (f"10 dead letters, else {RIGHT}", "10 dead letters"),
        ("the value became None", "null"),
        ("the driver's JVM ended", "JVM ended"),
        ("**unreadable**: x", "**unreadable**: x"),
    ],
)
def test_a_cell_of_the_report_in_the_words_of_the_page(cell, page):
    assert short(cell) == page


def run(checkout: Checkout, command: str, words: Mapping[str, object]) -> None:
    checkout.run(here(PAGE, command, words), WAIT_S)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kafka
def test_the_accidents_happen_again_as_the_page_says(checkout):
    """For every column of Spark 4, and then some of them for some accidents."""
    everything, some = commands_of(PAGE, MAKE)
    run(checkout, everything, {})
    check(checkout, "S", ("Spark", "Delta", "Iceberg", "streamsink"))
    run(checkout, some, {})
    check(checkout, "S15", ("Delta", "Iceberg"))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kafka
def test_the_sinks_of_an_older_spark_meet_them_as_the_page_says(checkout, tmp_path):
    """In an environment that the page makes, with two clusters of the reader's."""
    with KafkaBroker(tmp_path / "first") as first, KafkaBroker(tmp_path / "second", OTHER_CLUSTER_ID) as second:
        for command in commands_of(PAGE, OLDER):
            run(checkout, command, {"first": first.bootstrap, "second": second.bootstrap})
    check(checkout, "S", ("Hudi", "Paimon"))
