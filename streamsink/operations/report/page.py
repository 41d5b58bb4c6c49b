"""The report as one HTML page that stands alone: no script, and nothing is loaded from anywhere. Pure.

A content security policy in the page lets the browser load nothing, and takes its style sheet only by its digest. All
that comes out of the table is escaped and cut (``text.py``), so the page has a bounded size whatever the table holds.
"""

import base64
import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamsink.operations.report import figures, text
from streamsink.operations.report.charts import PATTERNS, Chart, Table
from streamsink.operations.report.style import STYLE
from streamsink.operations.report.text import safe
from streamsink.operations.report.upkeep import upkeep

#: With this begins each page, so that a page may replace an older one and nothing else.
MARK = "<!doctype html><!-- streamsink report -->"
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
_SEVERITIES = {"damage": ("bad", "Damage"), "note": ("", "Note")}
_FINE = (
    '<p><span class="fine">✓ Nothing is wrong.</span> Every retained snapshot, every file that it names, and every '
    "journal was looked at.</p>"
)
_MENDS = (
    '<p class="muted">The command that mends it. It shows what it would do, and does it with <code>--yes</code>:</p>'
)
_NOT_KNOWN = '<p class="muted">This table does not tell it.</p>'


def page(document: Mapping[str, Any], more: str = "") -> str:
    """The page of a report, as ``gather`` returns it. more: options behind each command that is shown."""
    made = _Page(document, more)
    sections = [
        ("findings", "Findings", made.findings()),
        ("snapshots", "Snapshots", made.snapshots()),
        ("events", "Restarts and accidents", made.events()),
        ("commits", "Latency of commits", made.commits()),
        ("batches", "Rows and bytes of a batch", made.batches()),
        ("files", "Files and partitions", made.files()),
        ("queries", "Queries, lag and pending work", made.queries()),
        ("care", "Maintenance", upkeep(document, more)),
    ]
    title = safe(f"streamsink report: {document['table']}", 200)
    links = "".join(f'<li><a href="#{key}">{safe(heading)}</a></li>' for key, heading, _ in sections)
    body = "".join(
        f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{safe(heading)}</h2>{part}</section>'
        for key, heading, part in sections
    )
    return (
        f'{MARK}<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{_POLICY}"><meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" '
        f'content="no-referrer"><title>{title}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f'<body><a class="skip" href="#main">Skip to the findings</a>{PATTERNS}{made.head()}<nav aria-label="Sections">'
        f'<ul>{links}</ul></nav><main id="main" tabindex="-1">{body}</main>{made.foot()}</body></html>\n'
    )


class _Page:
    def __init__(self, document: Mapping[str, Any], more: str):
        self._said, self._more, self._charts = document, more, 0

    def head(self) -> str:
        said, summary = self._said, self._said["summary"]
        branch = f", branch {text.name(said['branch'])}" if said["branch"] else ""
        tiles = "".join(
            f"<div><dt>{safe(what)}</dt><dd>{value}<small>{more}</small></dd></div>"
            for what, value, more in self._tiles()
        )
        keys = (
            f"; partitioned by {text.name(', '.join(summary['partition_keys']))}" if summary["partition_keys"] else ""
        )
        return (
            f'<header><h1>{text.name(said["table"])}</h1><p class="muted">Report of a Paimon table{branch}; '
            f"{text.things(summary['columns'], 'column')} (schema {summary['schema_id']}){keys}. Made "
            f'{text.moment(said["made_ms"])} UTC by streamsink {safe(said["version"])}.</p><dl class="tiles">{tiles}'
            "</dl></header>"
        )

    def _tiles(self) -> Iterator[tuple[str, str, str]]:
        said, summary = self._said, self._said["summary"]
        files, findings, waiting = said["files"], said["findings"], said["pending"]
        yield "Rows", text.count(summary["rows"]), f"snapshot {summary['newest'] or text.NOTHING}"
        if "sum" in files:
            yield "Data files", text.count(files["sum"]["files"]), text.size(files["sum"]["bytes"])
        ages = summary["newest_ms"]
        age = text.duration(max(0, said["made_ms"] - ages)) if ages is not None else text.NOTHING
        yield "Last commit", age, "before this page was made"
        yield "Snapshots", text.count(summary["retained"]), "retained"
        if isinstance(waiting, list):
            count, rows = _pending_of(waiting)
            yield "Pending", text.count(count), f"{'record' if count == 1 else 'records'}, {rows:,} rows"
        restarts = said["history"]["counts"].get("restart", 0)
        others = sum(said["history"]["counts"].values()) - restarts
        yield "Restarts", text.count(restarts), f"and {text.things(others, 'other event')}"
        if findings is not None:
            yield "Findings", text.count(findings["count"]), "to mend" if findings["ill"] else "nothing to mend"

    def findings(self) -> str:
        found = self._said["findings"]
        if found is None:
            return (
                "<p>This page was made without looking for findings. The command that looks:</p>"
                f"{self._command('doctor')}"
            )
        if "problem" in found:
            return _problem(found["problem"]) + self._command("doctor")
        if not found["count"]:
            return _FINE
        items = "".join(self._finding(each) for each in found["listed"])
        left = found["count"] - len(found["listed"])
        more = f"<p>{text.things(left, 'more finding')}: {self._command('doctor')}</p>" if left > 0 else ""
        return f'<ul class="findings">{items}</ul>{more}'

    def _finding(self, each: Mapping[str, Any]) -> str:
        look, word = _SEVERITIES.get(each["severity"], ("", each["severity"]))
        if each["command"]:
            look, word = look or "todo", word if look else "To do"
        typed = f"{each['command']} {self._more}".rstrip() if each["command"] else ""
        mend = f"{_MENDS}{text.command(typed)}"
        return (
            f'<li class="{look}"><p><span class="tag">{safe(word)}</span> <code>{safe(each["kind"], 80)}</code></p>'
            f"<p>{safe(each['text'][:1].upper() + each['text'][1:])}</p>{mend if typed else ''}</li>"
        )

    def snapshots(self) -> str:
        history, summary = self._said["history"], self._said["summary"]
        if not history["listed"]:
            return "<p>The table has no snapshot yet: nobody has committed.</p>"
        parts = f"{text.things(summary['read'], 'snapshot')} were read, {summary['first']:,} to {summary['newest']:,}"
        older = summary["retained"] - summary["read"]
        older_text = f"; {older:,} older ones are retained too and were not" if older > 0 else ""
        rows = [
            [str(each["id"]), text.moment(each["time_ms"]), safe(each["kind"], 20), text.count(each["total"])]
            + [f"{each['rows']:+,}", text.name(each["user"])]
            for each in reversed(history["listed"])
        ]
        table = Table([">snapshot", "=time (UTC)", "kind", ">rows", ">added rows", "commit user"], rows)
        return (
            f"<p>{parts}{older_text}.</p>{self._chart(figures.snapshots(history))}{figures.writers(history)}"
            f"<details><summary>The newest {len(rows)} snapshots</summary>"
            f"{table.html('The newest snapshots')}</details>"
        )

    def events(self) -> str:
        history = self._said["history"]
        if not history["counts"]:
            return "<p>None: in the snapshots that were read no query was started again, and nothing else happened.</p>"
        kinds = ", ".join(f"{safe(kind, 40)} {often:,}" for kind, often in history["counts"].items())
        rows = [
            [text.moment(each["time_ms"]), safe(each["kind"], 40), safe(each["text"], 600)]
            for each in reversed(history["happened"])
        ]
        table = Table(["=time (UTC)", "=what", "in a sentence"], rows, True).html("Restarts and accidents")
        left = history["events"] - len(rows)
        more = f" The newest {len(rows)} are listed." if left > 0 else ""
        return f"<p>By kind: {kinds}.{more}</p>{table}"

    def commits(self) -> str:
        found, parts = self._said["commits"], []
        if found["publish"]:
            says = (
                "From the moment at which a record was durable (its file's time) until it was known to be visible (its "
                "mark): what publishing takes, with what it waited for. Of the records that the journals still have."
            )
            parts.append(self._chart(figures.lengths("From durable to visible", found["publish"], says)))
        if found["planned"]:
            says = "From Spark's planning of a batch to the time of its snapshot, where the snapshot says both."
            parts.append(self._chart(figures.lengths("From planning to snapshot", found["planned"], says)))
        if found["between"]:
            says = "From a query's snapshot to its next one, so with pauses and with all that the batch itself takes."
            parts.append(self._chart(figures.lengths("Between two snapshots of a query", found["between"], says)))
        over = found["publish"] or found["planned"] or found["between"]
        if over and over["scale"]["count"] > 1:
            which = "From durable to visible" if found["publish"] else "Durations"
            says = "The first of the durations above, over time."
            parts.append(self._chart(figures.amounts(f"{which}, over time", over, text.duration, "duration", says)))
        return f'<div class="pair">{"".join(parts)}</div>' if parts else _NOT_KNOWN

    def batches(self) -> str:
        found, parts = self._said["batches"], []
        if not found["commits"]:
            return "<p>No query of streamsink has committed in the snapshots that were read.</p>"
        head = f"<p>{text.things(found['commits'], 'commit')} of {text.things(found['checkpoints'], 'checkpoint')}"
        if found["files"]:
            files = found["files"]
            head += (
                f"; the newest {files['count']:,} added {text.things(int(files['median']), 'file')} in the median, and "
                f"{files['largest']:,} at most"
            )
        parts.append(self._chart(figures.amounts("Rows of a batch", found["rows"], text.count, "rows", "Added rows.")))
        if found["bytes"]:
            says = "Bytes of added data files, of the newest commits whose manifests were read."
            parts.append(self._chart(figures.amounts("Bytes of a batch", found["bytes"], text.size, "bytes", says)))
        return f'{head}.</p><div class="pair">{"".join(parts)}</div>'

    def files(self) -> str:
        found = self._said["files"]
        if "problem" in found:
            return _problem(found["problem"])
        if not found["sum"]["files"]:
            return "<p>The newest snapshot has no data files.</p>"
        parts, sums = found["partitions"], found["sum"]
        head = (
            f"<p>{text.things(sums['files'], 'data file')} with {text.size(sums['bytes'])} and {sums['rows']:,} rows "
            f"in {text.things(parts['count'], 'partition')}.</p>"
        )
        skew = (
            f"The largest partition has {parts['skew']:,} times the bytes of the one in the middle (skew); a partition "
            f"has {text.count(parts['files']['median'])} files in the median, and "
            f"{text.count(parts['files']['largest'])} at most."
            if parts["skew"] is not None and parts["count"] > 1
            else ""
        )
        box = f'<div class="box"><h3>Partitions</h3><p class="muted">{skew}</p>{figures.partitions(parts)}</div>'
        return head + self._chart(figures.file_sizes(found)) + box

    def queries(self) -> str:
        said, parts = self._said, []
        known = said["queries"]
        if isinstance(known, dict):
            parts.append(_problem(known["problem"]))
        elif known:
            parts.append(_positions(known, said["made_ms"]))
        else:
            parts.append("<p>No query of streamsink is recorded in this table.</p>")
        delays = said["batches"]["watermark"]
        if delays:
            says = "How much older the watermark was than its snapshot: the lag of event time."
            parts.append(self._chart(figures.amounts("Lag of the watermark", delays, text.duration, "lag", says)))
        waiting = said["pending"]
        parts.append(_problem(waiting["problem"]) if isinstance(waiting, dict) else self._pending(waiting))
        letters = said["dead_letters"]
        if isinstance(letters, list) and letters:
            rows = [
                [text.name(each["path"]), text.name(each["application"]), text.count(each["rows"])] for each in letters
            ]
            table = Table(["table of dead letters", "application", ">rows now"], rows).html("Dead letters")
            parts.append(f'<div class="box"><h3>Dead letters</h3>{table}</div>')
        return "".join(parts)

    def _pending(self, journals: Sequence[Mapping[str, Any]]) -> str:
        rows = [
            [text.name(each["application"]), str(record["record"]), safe(record["checkpoint"], 80)]
            + [text.count(record["rows"]), text.count(record["files"]), text.size(record["bytes"])]
            + [text.duration(record["age_ms"]), safe(record["state"], 200)]
            for each in journals
            for record in each["pending"]
        ]
        head = '<div class="box"><h3>Pending work</h3>'
        if not rows:
            return f"{head}<p>Nothing: all that the journals have recorded is published.</p></div>"
        columns = ["application", ">record", "checkpoint", ">rows", ">files", ">bytes", ">age", "what becomes of it"]
        count, _ = _pending_of(journals)
        more = f"<p>The oldest {len(rows)} of {count:,} are listed.</p>" if count > len(rows) else ""
        says = "<p>Recorded, and not published yet: no reader sees it, and it is not lost.</p>"
        return f"{head}{says}{Table(columns, rows, True).html('Pending records')}{more}{self._command('pending')}</div>"

    def _chart(self, chart: Chart) -> str:
        self._charts += 1
        return chart.html(self._charts)

    def _command(self, name: str) -> str:
        return text.command(f"streamsink {name} {shlex.quote(self._said['table'])} {self._more}".rstrip())

    def foot(self) -> str:
        return (
            "<footer><p>This page is a picture of one moment: it does not change by itself, loads nothing, and runs no "
            f"script. The command that makes it anew:</p>{self._command('report')}<p>With --json the command prints "
            "the data of this page. docs/REPORT.md says what each part is made from.</p></footer>"
        )


def _positions(known: Sequence[Mapping[str, Any]], now_ms: int) -> str:
    rows = []
    for each in known:
        lag = now_ms - each["last_ms"] if each["last_ms"] is not None else None
        topics = each["topics"]
        read = "; ".join(
            f"{text.visible(topic['topic'], 80)}: {text.things(topic['partitions'], 'partition')}, next offsets add up "
            f"to {topic['next']:,}"
            for topic in topics[:5]
        )
        if len(topics) > 5:
            read += f"; and {len(topics) - 5:,} more topics"
        sources = "; ".join(text.visible(source, 120) for source in each["sources"][:3])
        rows.append(
            [text.name(each["application"]), safe(each["checkpoint"], 80), text.count(each["starts"])]
            + [text.duration(lag), text.count(each["read_last"]), safe("; ".join(filter(None, (read, sources))) or "–")]
        )
    columns = ["application", "last checkpoint", ">starts", ">time since it", ">read by it", "positions"]
    return (
        '<div class="box"><h3>How far each query has come</h3><p class="muted">As the newest snapshot says it. How far '
        "a topic goes beyond these positions is not recorded in a table; its broker tells.</p>"
        f"{Table(columns, rows, True).html('How far each query has come')}</div>"
    )


def _pending_of(journals: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """(number of all pending records, rows of those that are listed)."""
    rows = sum(record["rows"] or 0 for each in journals for record in each["pending"])
    return sum(each["count"] for each in journals), rows


def _problem(problem: str) -> str:
    tag = '<p><span class="tag">Not readable</span></p>'
    return f'<ul class="findings"><li class="bad">{tag}<p>{safe(problem)}</p></li></ul>'
