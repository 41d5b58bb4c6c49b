"""Defects of what only some stores have."""

from tests.sabotage.defect import Defect

_FINAL_NAMES, _SLEEPERS = "tests/crash/test_final_names.py", "tests/protocol/test_sleepers.py"

OF_STORES = (
    # -- files that have their final names at once
    Defect("what an older copy of the journal takes for nobody's goes", "table/history/deletion.py:_is_named",
           "if manifest in names:", "if True:\n                continue\n            if False:", (_FINAL_NAMES,)),
    Defect("what a paused driver may yet record is swept", "journal/announced.py:Announcement.may_get_its_record",
           "not self.asks or any(", "any(", (_FINAL_NAMES, _SLEEPERS)),
    Defect("an incomplete attempt of many rows stays", "journal/announced.py:Announcement.may_get_its_record",
           "not self.asks or any(", "True or any(", (_FINAL_NAMES, _SLEEPERS)),
    Defect("writers do not say where their files come to be", "table/write/writer.py:_FileSeries._announce",
           "        if new:\n", "        if False:\n", (_FINAL_NAMES,)),
    Defect("what a failed attempt announced is forgotten", "journal/staging.py:Staging.discard",
           "            self.has_more(int(match[2]), staging)\n", "            self._io.delete_tree(staging)\n", (_FINAL_NAMES,)),
    Defect("lists that were written for another base are used", "table/commit/table_commit.py:TableCommit._usable_ahead",
           "found.newest == ahead.newest", "True", (_FINAL_NAMES,)),
    Defect("lists that were written for another base stay", "table/commit/table_commit.py:TableCommit._usable_ahead",
           "        delete(self._table, ahead.files.own, Look.SINCE_TRY, durable=False)\n", "", (_FINAL_NAMES,)),
    Defect("a snapshot is marked before it is known to have come in time", "protocol/run/publish_queue.py:PublishQueue._finish",
           "        if outcome.settle is not None:\n", "        if False:\n", (_FINAL_NAMES,)),
    Defect("what is to be done beside the next batch is never done", "protocol/run/publish_schedule.py:PublishSchedule.stop",
           "            self._settle()\n", "", (_FINAL_NAMES,)),
    Defect("a record of files with final names looks like one of earlier code", "journal/record_format.py:encode_record",
           "        version = _WITH_FINAL_NAMES\n", "        pass\n", (_FINAL_NAMES,)),
)
