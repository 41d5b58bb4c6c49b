"""The page's section on maintenance: what would expire, what keeps snapshots, and what a compaction would do. Pure."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from streamsink.operations.report import text
from streamsink.operations.report.charts import Table
from streamsink.operations.report.text import safe


def upkeep(document: Mapping[str, Any], more: str) -> str:
    """more: options behind each command that is shown."""
    care, files = document["care"], document["files"]
    said = list(_compaction(document, more) if "compaction" in files else ())
    if "problem" in care:
        said.append(("Care", f"{safe(care['problem'])}"))
    else:
        said += [*_expiry(document, more), *_partitions(document, more), *_kept(document, more)]
    listed = "".join(f"<dt>{what}</dt><dd>{words}</dd>" for what, words in said)
    return f'<div class="box"><dl class="says">{listed}</dl></div>'


def _compaction(document: Mapping[str, Any], more: str) -> Iterator[tuple[str, str]]:
    found, history = document["files"]["compaction"], document["history"]
    done = sum(history["kinds"].get("COMPACT", ()))
    yield "Compaction done", f"{text.things(done, 'COMPACT snapshot')} among those that were read."
    if "problem" in found:
        yield "Compaction now", safe(found["problem"])
    elif not found["tasks"]:
        yield "Compaction now", "It would find nothing to do."
    else:
        yield (
            "Compaction now",
            f"It would take {text.things(found['files'], 'small file')} with {text.size(found['bytes'])} and "
            f"{found['rows']:,} rows, in {text.things(found['tasks'], 'task')}.{_command(document, 'compact', more)}",
        )


def _expiry(document: Mapping[str, Any], more: str) -> Iterator[tuple[str, str]]:
    found = document["care"]["snapshots"]
    if "problem" in found:
        yield "Snapshots that expire", safe(found["problem"])
        return
    options = ", ".join(f"{name}={value}" for name, value in found["options"].items()) or "none are set"
    kept = safe(found["why_kept"], 300)
    if found["going"]:
        said = (
            f"{text.things(found['going'], 'snapshot')} would go; from {found['first_kept']} on they stay: {kept}."
            f"{_command(document, 'expire', more)}"
        )
    else:
        said = f"None: {kept}."
    yield "Snapshots that expire", said + "".join(f"<p>{safe(note)}</p>" for note in found["notes"])
    yield "Options of expiry", safe(options, 400)


def _partitions(document: Mapping[str, Any], more: str) -> Iterator[tuple[str, str]]:
    found = document["care"]["partitions"]
    yield "Partitions that expire", safe(found.get("problem") or found["text"], 600)


def _kept(document: Mapping[str, Any], more: str) -> Iterator[tuple[str, str]]:
    care = document["care"]
    for name, heading in (("tags", "Tags"), ("branches", "Branches"), ("consumers", "Consumers")):
        found = care[name]
        if "problem" in found:
            yield heading, safe(found["problem"])
        elif not found["count"]:
            yield heading, "None."
        else:
            yield heading, _SAID[name](found) + _table(name, found)


def _of_tags(found: Mapping[str, Any]) -> str:
    over = f"; the time of {found['past_their_time']:,} is over" if found["past_their_time"] else ""
    return f"{text.things(found['count'], 'tag')}, which keep their snapshots{over}."


def _of_branches(found: Mapping[str, Any]) -> str:
    return f"{text.things(found['count'], 'branch', 'branches')} beside the main one."


def _of_consumers(found: Mapping[str, Any]) -> str:
    silent = f"; {found['silent']:,} silent for longer than the table allows" if found["silent"] else ""
    return f"{text.things(found['count'], 'consumer')}, which keep the snapshots that they have not read{silent}."


_SAID = {"tags": _of_tags, "branches": _of_branches, "consumers": _of_consumers}


def _table(name: str, found: Mapping[str, Any]) -> str:
    if name == "branches":
        rows = [
            [text.name(each["branch"]), text.count(each["snapshot"]), text.count(each["rows"])]
            + [text.moment(each["time_ms"])]
            for each in found["listed"]
        ]
        return Table(["branch", ">newest snapshot", ">rows", "time (UTC)"], rows).html("Branches")
    one, of = ("tag", "snapshot") if name == "tags" else ("consumer", "next_snapshot")
    rows = [[text.name(each[one]), text.count(each[of])] for each in found["listed"]]
    return Table([one, f">{of.replace('_', ' ')}"], rows).html(name)


def _command(document: Mapping[str, Any], name: str, more: str) -> str:
    return text.command(f"streamsink {name} {shlex.quote(document['table'])} {more}".rstrip())
