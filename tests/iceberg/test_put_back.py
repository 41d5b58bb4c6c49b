"""What was rolled back comes again: by the journal, by operators, or by both; each row is there once."""

import pytest

from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.options import SinkOptions
from streamsink.testing.conformance import ROOT
from tests.advice.following import follows, told
from tests.iceberg.lake import Lake
from tests.iceberg.test_accidents import all_of, expire, make_current, roll_back, snapshots

AGAIN = {"on_rollback": "republish"}


@pytest.fixture
def lake():
    """The last two of three batches were rolled back."""
    made = Lake()
    made.run((3, 6, 9), **AGAIN)
    made.rolled_back = snapshots(made)
    roll_back(made, snapshots(made)[0])
    return made


def files_of(lake, snapshot_id: int) -> list:
    """The data files that a snapshot has added."""
    table = lake.table()
    manifests = table.metadata.snapshot_by_id(snapshot_id).manifests(table.io)
    added = [each for each in manifests if each.added_snapshot_id == snapshot_id]
    return [entry.data_file for each in added for entry in each.fetch_manifest_entry(table.io)]


def add(lake, files, **summary) -> None:
    """Another program adds files that are there."""
    with (
        lake.table().transaction() as adding,
        adding.update_snapshot(snapshot_properties=summary).fast_append() as update,
    ):
        for file in files:
            update.append_data_file(file)


@pytest.mark.parametrize("is_lost", [False, True], ids=["refused", "not answered"])
def test_a_record_that_is_published_again_is_not_taken_for_published(is_lost):
    """Another writer is first, or the commit gets no answer. The property has the record from before the rollback; if
    that counted, the rows were gone for good as soon as the old snapshots have expired."""
    lake = Lake()
    lake.run((3, 6, 9), **AGAIN)
    roll_back(lake, snapshots(lake)[1])

    def exchange(action):
        lake.tables.exchange = lambda action: action()
        if is_lost:
            raise ConnectionError("no answer")
        lake.append(100, 101)
        action()

    lake.tables.exchange = exchange
    if is_lost:
        told("publish.unknown", lambda: lake.run((3, 6, 9), **AGAIN))
    lake.run((3, 6, 9), **AGAIN)
    expire(lake, *snapshots(lake)[:-1])
    lake.run((3, 6, 9, 12), **AGAIN)
    assert lake.ids() == [*all_of(12), *([] if is_lost else [100])]


@pytest.mark.parametrize("picked", [(1,), (2,), (1, 2)], ids=str)
@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_cherry_picked_is_not_published_again(lake, picked, compacted):
    """As Spark's procedure does it: the same files, under a new snapshot. Even if they were rewritten since."""
    for number in picked:
        snapshot = lake.rolled_back[number]
        add(lake, files_of(lake, snapshot), **{"source-snapshot-id": str(snapshot)})
    if compacted:
        table = lake.table()
        table.overwrite(table.scan().to_arrow())
    told("table.rolled-back", lambda: lake.run((3, 6, 9, 12))).says("cherrypick_snapshot are not doubled")
    lake.run((3, 6, 9, 12), **AGAIN)
    assert lake.ids() == all_of(12)


@follows("give-up.published")
@pytest.mark.parametrize("by", ["cherrypick", "name"])
def test_what_somebody_has_put_back_is_not_given_up(by):
    """The way on needs nothing of the record but that its rows are there: what describes its files is gone."""
    lake = Lake()
    lake.run((3, 6, 9))
    first, _, last = snapshots(lake)
    roll_back(lake, first)
    add(lake, files_of(lake, last), **({"source-snapshot-id": str(last)} if by == "cherrypick" else {}))
    told("table.rolled-back", lambda: lake.run((3, 6, 9, 12)))
    said = told("give-up.published", lambda: give_up(lake)).says("record 3", "Nothing was given up")
    assert "Start the query" not in said.message, "record 2 is lost, and goes with those behind it"
    said.says("by going back to what it was before they came, and call this again")
    roll_back(lake, first)
    assert give_up(lake).records == (2, 3)
    lake.checkpoint.committed = 1
    lake.run((3, 6, 9))
    roll_back(lake, snapshots(lake)[-2])
    add(lake, files_of(lake, last := snapshots(lake)[-1]), **({"source-snapshot-id": str(last)}))
    said = told("give-up.published", lambda: give_up(lake)).says("Start the query")
    lake.run((3, 6, 9, 12), on_rollback=said.option("on_rollback"))
    assert lake.ids() == all_of(12)


def give_up(lake):
    return give_up_of_sink(lake.io(), lake.sink(), SinkOptions.of(ROOT, {}))


def test_files_that_somebody_has_added_are_not_published_again(lake):
    """By their names, as add_files does; other rows came before and behind."""
    lake.append(100, 102)
    add(lake, files_of(lake, lake.rolled_back[2]))
    lake.append(102, 104)
    lake.run((3, 6, 9, 12), **AGAIN)
    assert lake.ids() == [*all_of(12), 100, 101, 102, 103]


@follows("iceberg.partly-there")
@pytest.mark.parametrize("way", ["take out", "add"])
def test_a_record_that_is_there_in_part_is_an_error(way):
    lake = Lake()
    by = {"partition_by": ["id"], **AGAIN}
    lake.run((3, 6), **by)
    files = files_of(lake, snapshots(lake)[1])
    roll_back(lake, snapshots(lake)[0])
    add(lake, files[:1])
    said = told("iceberg.partly-there", lambda: lake.run((3, 6, 9), **by))
    said.says("1 of the 3", "record 2", "Take them out of the table, or add the others", "Nothing was written")
    name = said.find(r"for instance, (\S+)$")
    if way == "add":
        add(lake, [file for file in files if not file.file_path.endswith(name)])
    else:
        roll_back(lake, snapshots(lake)[0])
    lake.run((3, 6, 9), **by)
    assert lake.ids() == all_of(9)


@pytest.mark.parametrize("rolled_back", [False, True])
def test_files_are_found_where_they_were_written(rolled_back):
    """Somebody has set another place for data files while a record was waiting."""
    lake = Lake()
    lake.run((3,), **AGAIN)
    if rolled_back:
        lake.run((3, 6), **AGAIN)
        roll_back(lake, snapshots(lake)[0])
    else:
        lake.record((3, 6), **AGAIN)
    with lake.table().transaction() as changing:
        changing.set_properties({"write.data.path": f"{ROOT}/elsewhere"})
    lake.run((3, 6, 9), **AGAIN)
    assert lake.ids() == all_of(9)
    paths = lake.table().inspect.files().column("file_path").to_pylist()
    assert sorted(path.startswith(f"{ROOT}/elsewhere/") for path in paths) == [False, False, True]


def test_an_option_that_was_set_too_late_is_told_the_way_back():
    """What describes the files of a published record is kept only with the option."""
    lake = Lake()
    lake.run((3, 6))
    newest = snapshots(lake)[-1]
    roll_back(lake, snapshots(lake)[0])
    told("table.rolled-back", lambda: lake.run((3, 6, 9))).says("if on_rollback='republish' was set when")
    told("pending.files-gone", lambda: lake.run((3, 6, 9), **AGAIN)).says("put it back as it was")
    make_current(lake, newest)
    lake.run((3, 6, 9))
    assert lake.ids() == all_of(9)


def test_a_record_whose_files_are_gone_is_given_up():
    """Where nobody can restore them. Spark gives the batch again."""
    lake = Lake()
    lake.run((3,))
    lake.record((3, 6))
    current = lake.table().inspect.files().column("file_path").to_pylist()
    [path] = set(lake.io().files_below(f"{ROOT}/shop/orders/data")) - set(current)
    lake.io().delete(path)
    said = told("pending.files-gone", lambda: lake.run((3, 6, 9)))
    name = said.find(r"streamsink\.give_up\(sink, application='(\w+)'\)")
    given_up = give_up_of_sink(lake.io(), lake.sink(), SinkOptions.of(ROOT, {"application": name}))
    assert given_up.records == (2,)
    lake.run((3, 6, 9))
    assert lake.ids() == all_of(9)


@follows("pending.files-gone")
@pytest.mark.parametrize("somebody", ["nobody", "by-name"])
def test_a_record_whose_description_is_gone_is_given_up(somebody):
    """Unless somebody has added its files by name: then it is published, since its rows would be there twice."""
    lake = Lake()
    lake.run((3,))
    current = lake.table().inspect.files().column("file_path").to_pylist()
    lake.record((3, 6))
    [described] = [path for path in lake.io().files_below(ROOT) if "/staging/" in path and "/manifest-" in path]
    lake.io().delete(described)
    said = told("pending.files-gone", lambda: lake.run((3, 6, 9))).says("Restore that file", "Nothing was published")
    name = said.find(r"streamsink\.give_up\(sink, application='(\w+)'\), with the sink that to_sink was given")
    if somebody == "by-name":
        [path] = set(lake.io().files_below(f"{ROOT}/shop/orders/data")) - set(current)
        lake.table().add_files([path])
        assert give_up(lake).records == () and lake.ids() == all_of(6)
        lake.run((3, 6, 9))
        assert lake.ids() == all_of(9)
        return
    given_up = give_up_of_sink(lake.io(), lake.sink(), SinkOptions.of(ROOT, {"application": name}))
    assert given_up.records == (2,)
    lake.run((3, 6, 9))
    assert lake.ids() == all_of(9)


@follows("table.rolled-back")
def test_a_rollback_further_than_the_journal_remembers_can_be_given_up():
    """What the table said of the record that it has now is in an earlier metadata file; the source is read again."""
    lake = Lake()
    lake.run((3, 6, 9, 12, 15), journal_retain=2)
    roll_back(lake, snapshots(lake)[1])
    said = told("table.rolled-back", lambda: lake.run((3, 6, 9, 12, 15, 18), journal_retain=2))
    said.says("streamsink.give_up(sink, application='streamsink')", "Nothing was written")
    given_up = give_up_of_sink(lake.io(), lake.sink(), SinkOptions.of(ROOT, {"journal_retain": 2}))
    assert given_up.records == (4, 5) and "record 2" in str(given_up)
    lake.checkpoint.committed = 2
    lake.run((3, 6, 9, 12, 15, 18), journal_retain=2)
    assert lake.ids() == all_of(18)


@follows("application.renamed")
def test_what_a_name_has_written_in_a_table_that_was_dropped_counts():
    """Else a query that goes on under a new name behind that would leave its rows out, of which none is left."""
    lake = Lake()
    lake.run((3, 6))
    adopt = told("application.renamed", lambda: lake.run((3, 6, 9), application="other")).option("adopt_from_batch")
    lake.drop()
    renamed = {"application": "other", "adopt_from_batch": adopt}
    first = told("application.renamed", lambda: lake.run((3, 6, 9), **renamed)).option("application")
    told("table.recreated", lambda: lake.run((3, 6, 9), application=first)).says("remove the journal")
    assert lake.ids() == []


@follows("application.renamed")
@pytest.mark.parametrize("left", ["the journal", "earlier metadata", "nothing"])
def test_what_a_name_has_lost_by_a_rollback_is_not_left_out_under_another_name(left):
    """The property does not go back with the table: what it says of the first name is not there any more."""
    lake = Lake()
    lake.run((3, 6), **AGAIN)
    roll_back(lake, snapshots(lake)[0])
    if left != "the journal":
        [journal] = {path.rpartition("/")[0] for path in lake.io().files_below(ROOT) if "/record-" in path}
        lake.io().delete_tree(journal)
    if left == "nothing":
        for entry in lake.table().metadata.metadata_log:
            lake.io().delete(entry.metadata_file)
    renamed = {"application": "other", "adopt_from_batch": 2, **AGAIN}
    said = told("application.renamed", lambda: lake.run((3, 6, 9), **renamed))
    first = {"application": said.says("first start the query once more under the first one").option("application")}
    if left == "the journal":
        lake.run((3, 6), **first, **AGAIN)
        assert lake.ids() == all_of(6)
        lake.run((3, 6, 9), **renamed)
        assert lake.ids() == all_of(9)
    elif left == "earlier metadata":
        gap = told("positions.gap", lambda: lake.run((3, 6, 9), **first, **AGAIN))
        assert gap.option("startingOffsets") == '{"t": {"0": 3}}' and lake.ids() == all_of(3)
    else:
        told("table.rolled-back-too-far", lambda: lake.run((3, 6, 9), **first, **AGAIN))
        assert lake.ids() == all_of(3)
