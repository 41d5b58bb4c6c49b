"""The charts of the report's page, each made from one part of its data. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamsink.operations.report import text
from streamsink.operations.report.charts import Chart, Table, axis_below, share, some_of, strip

_KINDS = {"APPEND": "solid", "COMPACT": "stripes", "OVERWRITE": "dots", "ANALYZE": "bars"}
_TIME = "time (UTC)"
_EVERY = "each bar {}"


def snapshots(history: Mapping[str, Any]) -> Chart:
    """How many snapshots there were of each kind, with restarts and accidents above them."""
    scale, kinds = history["scale"], history["kinds"]
    columns = [{kind: found[place] for kind, found in kinds.items()} for place in range(scale["count"])]
    signs = [
        (place, sign, words)
        for sign, words, name in (
            ("restart", "restart of a query", "restarts"),
            ("accident", "something else, listed below", "accidents"),
        )
        for place, often in enumerate(history[name])
        if often
    ]
    rows = [
        [text.moment(_begin(scale, place)), *(text.count(column[kind]) for kind in kinds)]
        + [text.count(history["restarts"][place]), text.count(history["accidents"][place])]
        for place, column in enumerate(columns)
        if any(column.values()) or history["restarts"][place] or history["accidents"][place]
    ]
    return Chart(
        "Snapshots by kind",
        f"How many snapshots were committed, {_EVERY.format(text.duration(scale['width_ms']))}.",
        columns,
        {kind: _KINDS.get(kind, "grid") for kind in kinds},
        _time_labels(scale),
        Table([f"=from ({_TIME})", *(f">{kind}" for kind in kinds), ">restarts", ">other events"], rows),
        y_title="snapshots",
        x_title=_TIME,
        above=signs,
    )


def writers(history: Mapping[str, Any]) -> str:
    """For each writer a line of when it has committed."""
    scale = history["scale"]
    lanes = []
    for writer, found in history["writers"].items():
        total = f"{sum(found):,}"
        label = f"{text.visible(writer, 80)}: {total} snapshots, at most {max(found):,} in a bar"
        lanes.append(
            f"<li><span>{text.name(writer)}</span>{strip(found, label)}"
            f'<span class="n">{total}<span class="muted"> snapshots</span></span></li>'
        )
    labels = axis_below(_time_labels(scale, 4), scale["count"], 14, "start")
    below = f'<svg class="strip" height="18" aria-hidden="true">{labels}</svg>'
    axis = f'<li aria-hidden="true"><span></span>{below}<span></span></li>'
    rows = [
        [text.moment(_begin(scale, place)), *(text.count(found[place]) for found in history["writers"].values())]
        for place in range(scale["count"])
        if any(found[place] for found in history["writers"].values())
    ]
    table = Table([f"=from ({_TIME})", *(f">{text.visible(each, 60)}" for each in history["writers"])], rows)
    return (
        '<figure aria-labelledby="writers-title"><figcaption id="writers-title"><h3>Who committed, and when</h3><p>'
        f"One line for each writer; its bars are as high as its own busiest {text.duration(scale['width_ms'])} say."
        f'</p></figcaption><ul class="lanes">{"".join(lanes)}{axis}</ul><details><summary>The numbers of this chart: '
        f"Who committed, and when</summary>{table.html('Snapshots by writer')}</details></figure>"
    )


def amounts(title: str, found: Mapping[str, Any], unit: Callable[[float | None], str], thing: str, says: str) -> Chart:
    """The median and the largest of something over time. thing: what it is. says: what the chart shows, in HTML."""
    scale, parts = found["scale"], found["over_time"]
    whole = found["summary"]
    columns = [
        {"median": part["median"], "from there to the largest": part["largest"] - part["median"]} if part else {}
        for part in parts
    ]
    rows = [
        [text.moment(_begin(scale, place)), text.count(part["count"]), unit(part["median"]), unit(part["largest"])]
        for place, part in enumerate(parts)
        if part
    ]
    said = (
        f"{says} Of {text.things(int(whole['count']), 'commit')}: median {unit(whole['median'])}, 90 of 100 at most "
        f"{unit(whole['p90'])}, 99 of 100 at most {unit(whole['p99'])}, largest {unit(whole['largest'])}; "
        f"{_EVERY.format(text.duration(scale['width_ms']))}."
    )
    return Chart(
        title,
        said,
        columns,
        {"median": "solid", "from there to the largest": "stripes"},
        _time_labels(scale),
        Table([f"=from ({_TIME})", ">commits", ">median", ">largest"], rows),
        unit,
        y_title=thing,
        x_title=_TIME,
    )


def lengths(title: str, found: Mapping[str, Any], says: str) -> Chart:
    """How often a duration was how long."""
    bars, whole = found["lengths"], found["summary"]
    labels = [(place, text.duration(bars[place]["from_ms"])) for place in some_of(len(bars))]
    rows = [[_between(each), text.count(each["count"])] for each in bars]
    said = (
        f"{says} Median {text.duration(whole['median'])}, 90 of 100 at most {text.duration(whole['p90'])}, 99 of 100 "
        f"at most {text.duration(whole['p99'])}, longest {text.duration(whole['largest'])}."
    )
    return Chart(
        title,
        said,
        [{"commits": each["count"]} for each in bars],
        {"commits": "solid"},
        labels,
        Table(["duration", ">commits"], rows),
        y_title="commits",
        x_title="duration, each bar about twice the last one",
    )


def file_sizes(files: Mapping[str, Any]) -> Chart:
    """How many files are how large, against the size that a file is to have."""
    bars, target, marks = files["sizes"], files["target_bytes"], list[tuple[float, str]]()
    place = _place_of(target, bars) if target else None
    if place is not None:
        marks = [(place, f"target-file-size {text.size(target)}")]
    beyond = ""
    if target and place is None:
        which = "smaller" if target >= bars[-1]["to_bytes"] else "larger"
        beyond = f" All of them are {which} than the target-file-size, {text.size(target)}."
    rows = [
        [f"{text.size(each['from_bytes'])} to {text.size(each['to_bytes'])}"]
        + [text.count(each["count"]), text.size(each["bytes"])]
        for each in bars
    ]
    whole = files["size"]
    return Chart(
        "Sizes of the data files",
        f"Each bar has the files of twice the size of those in the bar before. Median {text.size(whole['median'])}, "
        f"smallest {text.size(whole['least'])}, largest {text.size(whole['largest'])}.{beyond}",
        [{"files": each["count"]} for each in bars],
        {"files": "solid"},
        [(at, text.size(bars[at]["from_bytes"])) for at in some_of(len(bars))],
        Table(["size", ">files", ">bytes in them"], rows),
        y_title="files",
        x_title="size of a file",
        marks=marks,
    )


def partitions(found: Mapping[str, Any]) -> str:
    """The largest partitions, and the smallest ones, as a table with bars."""
    top = found["largest"][0]["bytes"] if found["largest"] else 0
    rows = [_partition(each, top) for each in found["largest"]]
    left_out = found["count"] - len(found["largest"]) - len(found["smallest"])
    if left_out > 0:
        rows.append([f"… {text.things(left_out, 'partition')} between them …", "", "", "", ""])
    rows += [_partition(each, top) for each in found["smallest"]]
    return Table(["partition", "share", ">bytes", ">files", ">rows"], rows).html("Partitions by size")


def _partition(each: Mapping[str, Any], top: int) -> list[str]:
    cells = [text.size(each["bytes"]), text.count(each["files"]), text.count(each["rows"])]
    return [text.name(each["partition"] or "(all)"), share(each["bytes"], top), *cells]


def _begin(scale: Mapping[str, int], place: int) -> int:
    return scale["begin_ms"] + place * scale["width_ms"]


def _time_labels(scale: Mapping[str, int], most: int = 6) -> list[tuple[float, str]]:
    places = some_of(scale["count"], most)
    return list(zip(places, text.ticks_of_time(scale["begin_ms"], scale["width_ms"], places, scale["count"])))


def _between(bar: Mapping[str, Any]) -> str:
    if bar["to_ms"] is None:
        return f"{text.duration(bar['from_ms'])} and more"
    return f"{text.duration(bar['from_ms'])} to {text.duration(bar['to_ms'])}"


def _place_of(target: int, bars: Sequence[Mapping[str, Any]]) -> float | None:
    """Where in the bars a size is; None where it is in none of them."""
    for place, bar in enumerate(bars):
        if bar["from_bytes"] <= target < bar["to_bytes"]:
            part: float = (target - bar["from_bytes"]) / (bar["to_bytes"] - bar["from_bytes"])
            return place + part
    return None
