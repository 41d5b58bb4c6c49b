"""An account of a query as events of OpenLineage, made of the classes of its client library.

The only module that imports the library, and it is imported when somebody asks for lineage.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from openlineage.client import event_v2
from openlineage.client.facet_v2 import (
    base_subset_dataset,
    dataset_version_dataset,
    datasource_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.generated.base import InputDatasetFacet, RunFacet
from openlineage.client.uuid import generate_static_uuid

from streamsink.lineage.account import ABORT, COMPLETE, FAIL, RunSoFar, SourceRead, Told, TopicRead, Written
from streamsink.lineage.naming import DatasetName, Destinations, of_folder, of_topic
from streamsink.protocol.sink import VERSION
from streamsink.spark.query_facts import ABORTED, QueryFacts, SourceFacts

PRODUCER = f"urn:streamsink:{VERSION}"
# Of one topic so many partitions are told one by one.
MOST_PARTITIONS = 1_000


@dataclass(frozen=True)
class Naming:
    """How the user wants jobs to be called. namespace, job: of the job; '' for the name of the Spark application, of
    the streamsink application and of the destination, with dots between. parent: namespace, job and run id of what has
    started the query. interval_ms: the shortest time between two events of a query that runs. inputs: datasets that the
    query reads besides. outputs: by path, what a dataset is called.
    """

    namespace: str
    job: str = ""
    parent: tuple[str, str, str] | None = None
    interval_ms: int = 0
    inputs: Sequence[DatasetName] = ()
    outputs: Mapping[str, DatasetName] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """One start of one query, with what Spark says of it, and what it writes to."""

    run: RunSoFar
    facts: QueryFacts
    to: Destinations


def message(told: Told, naming: Naming) -> Any:
    """The event, a ``RunEvent`` of the client library. ``told.run.about`` is what ``About`` of the listener says."""
    to = Destinations(told.run.about.sink, told.run.table, naming.outputs)
    of = Subject(told.run, told.run.about.facts, to)
    state, why = _ending(told, of)
    facets = _run_facets(told, of, naming)
    if why:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=why, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return event_v2.RunEvent(
        eventType=event_v2.RunState[state],
        eventTime=_time(told.at_ms),
        producer=PRODUCER,
        run=event_v2.Run(runId=run_id(of.run), facets=facets),
        job=_job(of, naming),
        inputs=_inputs(told, of, naming),
        outputs=_outputs(told, of),
    )


def run_id(run: RunSoFar) -> str:
    """The id of a run of a job: of one start of a query into one destination. Spark's own is that of all of them."""
    began = datetime.fromtimestamp(run.began_ms / 1000, timezone.utc)
    of = f"{run.run}\n{run.table}\n{run.application}\n{run.began_ms}"
    return str(generate_static_uuid(began, hashlib.sha256(of.encode()).digest()))


def _ending(told: Told, of: Subject) -> tuple[str, str]:
    """The state, and why the run has failed. Spark knows of failures that no batch has seen."""
    if told.state not in (COMPLETE, FAIL, ABORT):
        return told.state, ""
    found = of.facts.failure()
    state = told.state
    if told.state == COMPLETE and found:
        state = ABORT if found == ABORTED else FAIL
    elif told.state == FAIL and not found and not of.run.is_bounded:
        state = ABORT  # stopped in a batch
    mine = f"{told.error} ({told.kind})" if told.kind else told.error
    return state, mine or found


def _time(at_ms: int) -> str:
    text = datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _job(of: Subject, naming: Naming) -> Any:
    leaf = of.run.table.rstrip("/").rpartition("/")[2]
    name = naming.job or ".".join(part for part in (of.facts.app, of.run.application, leaf) if part)
    window = naming.interval_ms // 1000
    pattern = job_type_job.EmissionPattern(
        eventTrigger="PERIODIC" if window else "EVENT_BASED",
        eventContentMode="COMPLETE_SNAPSHOT",
        windowDuration=window or None,
    )
    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH" if of.run.is_bounded else "STREAMING",
        integration="STREAMSINK",
        jobType="JOB" if of.run.is_bounded else "QUERY",
        emissionPattern=None if of.run.is_bounded else pattern,
        producer=PRODUCER,
    )
    return event_v2.Job(namespace=naming.namespace, name=name, facets={"jobType": kind})


def _run_facets(told: Told, of: Subject, naming: Naming) -> dict[str, Any]:
    window = told.window
    own: dict[str, Any] = {"application": of.run.application, "sparkRunId": of.run.run, "queryId": of.run.query}
    own |= {"queryName": of.facts.name} if of.facts.name else {}
    if window.checkpoints:
        own |= {"firstCheckpoint": window.first, "lastCheckpoint": window.last, "checkpoints": window.checkpoints}
        own |= {"since": _time(window.began_ms)}
    facets = {"streamsink": RunFacet(producer=PRODUCER).with_additional_properties(**own)}
    if of.facts.spark_version:
        facets["processing_engine"] = processing_engine_run.ProcessingEngineRunFacet(
            version=of.facts.spark_version, name="spark", openlineageAdapterVersion=VERSION, producer=PRODUCER
        )
    if naming.parent is not None:
        namespace, job, run = naming.parent
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=run), job=parent_run.Job(namespace=namespace, name=job), producer=PRODUCER
        )
    return facets


# -- datasets ----------------------------------------------------------------------------------------------------------


def _data_source(named: DatasetName) -> Any:
    return datasource_dataset.DatasourceDatasetFacet(name=named.namespace, uri=named.namespace, producer=PRODUCER)


def _inputs(told: Told, of: Subject, naming: Naming) -> list[Any]:
    """All sources of the query, also those of which nothing was read since. Some may be one dataset."""
    found: dict[DatasetName, dict[str, Any]] = {named: {} for named in naming.inputs}
    for place, source in enumerate(of.run.sources):
        facts = of.facts.sources[place] if place < len(of.facts.sources) else SourceFacts()
        read = told.window.read.get(place, SourceRead())
        for topic in source.end if source.numeric and facts.servers else ():
            facets = _of_topic(read.topics[topic]) if topic in read.topics else {}
            found.setdefault(of_topic(facts.servers, topic), {}).update(facets)
        if facts.folder:
            found.setdefault(of_folder(facts.folder), {}).update(_of_files(read))
    return [
        event_v2.InputDataset(
            namespace=named.namespace, name=named.name, facets={"dataSource": _data_source(named)}, inputFacets=facets
        )
        for named, facets in found.items()
    ]


def _of_topic(read: TopicRead) -> dict[str, Any]:
    """The offsets. They are no count of rows: transactions leave gaps, and topics are compacted."""
    parts = sorted(read.parts.items(), key=lambda each: int(each[0]))
    told = [{"partition": int(part), "start": first, "end": end} for part, (first, end) in parts]
    own: dict[str, Any] = {"partitions": told[:MOST_PARTITIONS], "partitionCount": len(told)}
    own |= {"clusterId": read.cluster} if read.cluster else {}
    own |= {"topicId": read.topic_id} if read.topic_id else {}
    return {"streamsink_offsets": InputDatasetFacet(producer=PRODUCER).with_additional_properties(**own)}


def _of_files(read: SourceRead) -> dict[str, Any]:
    if read.files is None:
        return {}
    count = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(fileCount=read.files, producer=PRODUCER)
    if not read.named:
        return {"inputStatistics": count}
    subset = base_subset_dataset.InputSubsetInputDatasetFacet(
        inputCondition=base_subset_dataset.LocationSubsetCondition(locations=list(read.named)), producer=PRODUCER
    )
    return {"inputStatistics": count, "subset": subset}


def _outputs(told: Told, of: Subject) -> list[Any]:
    """All datasets that the run has written so far; those of this window have statistics."""
    named = {path: of.to.name_of(path) for path in (*of.to.paths, *of.run.versions)}
    return [_output(name, path, told.window.written.get(path), of) for path, name in named.items() if name is not None]


def _output(named: DatasetName, path: str, written: Written | None, of: Subject) -> Any:
    facets: dict[str, Any] = {"dataSource": _data_source(named)}
    if of.run.columns and of.to.has_all_columns:
        columns = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in of.run.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns, producer=PRODUCER)
    if version := of.run.versions.get(path, ""):
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=version, producer=PRODUCER
        )
    if layer := of.to.layer_of(path):
        facets["storage"] = storage_dataset.StorageDatasetFacet(
            storageLayer=layer, fileFormat="parquet", producer=PRODUCER
        )
    if alias := of.to.alias_of(path):
        one = symlinks_dataset.Identifier(namespace=alias.namespace, name=alias.name, type="TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[one], producer=PRODUCER)
    statistics: Mapping[str, Any] = {}
    if written is not None:
        statistics = {
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=written.rows, size=written.size, fileCount=written.files, producer=PRODUCER
            )
        }
    return event_v2.OutputDataset(
        namespace=named.namespace, name=named.name, facets=facets, outputFacets=dict(statistics)
    )
