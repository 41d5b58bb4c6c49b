"""The options: described once, where they are declared, and passed as keywords or as an object."""

import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.options import Settings, SinkOptions
from tests import options_page


def test_each_option_is_described_below_its_declaration():
    assert descriptions_of() == list(SinkOptions.__dataclass_fields__)


def descriptions_of() -> list[str]:
    return list(options_page.descriptions())


def test_the_page_of_options_is_as_the_code_has_it():
    """``python -m tests.options_page`` writes it."""
    assert options_page.PAGE.read_text(encoding="utf-8") == options_page.page()


def test_each_option_is_a_keyword_of_the_public_functions():
    assert sorted(Settings.__annotations__) == sorted(SinkOptions.__dataclass_fields__)


def test_options_may_be_passed_as_an_object_and_a_keyword_counts_more(tmp_path):
    given = SinkOptions(application="orders", journal_retain=7)
    sink = streamsink.to_table(tmp_path / "t", options=given, journal_retain=9)
    assert (sink.options.application, sink.options.journal_retain) == ("orders", 9)


@pytest.mark.parametrize(
    "call",
    [
        streamsink.to_table,
        lambda path, options: streamsink.write(None, path, "r1", options=options),
        lambda path, options: streamsink.to_tables(path, "'t'", {"t": {}}, options=options),
        streamsink.give_up,
        lambda path, options: streamsink.retire(path, "orders", options=options),
        lambda path, options: streamsink.drop_missing(path, options=options),
    ],
    ids=["to_table", "write", "to_tables", "give_up", "retire", "drop_missing"],
)
@pytest.mark.parametrize("given", [{"application": "orders"}, "orders", 7])
def test_what_is_no_options_is_refused_by_name(tmp_path, call, given):
    with pytest.raises(Misuse, match="'options'.*streamsink.SinkOptions") as refused:
        call(tmp_path / "t", options=given)
    assert refused.value.kind == "option.value" and str(tmp_path) in str(refused.value)


def test_an_object_with_a_wrong_value_is_refused_when_it_is_used(tmp_path):
    """A dataclass takes anything; the sink looks at it."""
    with pytest.raises(Misuse, match="journal_retain.*at least 2"):
        streamsink.to_table(tmp_path / "t", options=SinkOptions(journal_retain=1))


def test_names_of_an_object_are_what_names_of_keywords_are(tmp_path):
    """One may be given alone, and none is a text that is taken letter by letter."""
    sink = streamsink.to_table(tmp_path / "t", options=SinkOptions(partition_by="dt"))
    assert sink.options.partition_by == ("dt",)
    for wrong in ({"partition_by": None}, {"position_columns": "abc"}, {"position_columns": (1, 2, 3)}):
        with pytest.raises(Misuse, match=next(iter(wrong))):
            streamsink.to_table(tmp_path / "t", options=SinkOptions(**wrong))


def test_a_run_whose_name_is_not_certain_is_refused(tmp_path):
    """Runs are known within their application: under another name than before, one would be written a second time."""
    for options in (SinkOptions(), SinkOptions(application="streamsink")):
        with pytest.raises(Misuse, match="option 'application' is 'streamsink', expected a keyword") as refused:
            streamsink.write(None, tmp_path / "t", "r1", options=options)
        assert "application='batch'" in str(refused.value) and not (tmp_path / "t").exists()
        assert "as 'streamsink', say application='streamsink'" in str(refused.value), "the name that runs may have had"
