"""Defects of the client of S3, of the hold that ends with its query, and of files with final names at once."""

from tests.sabotage.defect import Defect

_CLIENT = "tests/storage/test_s3_client.py"
_HOLDS = "tests/e2e/test_holds.py"
_KEYS = "tests/storage/test_s3_keys.py"
_FINAL_NAMES = "tests/crash/test_final_names.py"
_FINAL_NAMES_OF_TABLES = "tests/crash/test_final_names_of_tables.py"
_ASKED_AHEAD = "tests/storage/test_asked_ahead.py"
_SLEEPERS = "tests/protocol/test_sleepers.py"

OF_STORES = (
    Defect("S3: a body is announced, and its leave awaited", "storage/s3_client.py:_send_the_body_at_once",
           'params["headers"].pop("Expect", None)', "None", (f"{_CLIENT}::test_a_body_is_sent_without_asking_before",)),
    Defect("S3: a listing is its first page", "storage/s3_calls.py:S3Calls._pages",
           'page.get("IsTruncated", False)', "False", (f"{_CLIENT}::test_a_listing_of_several_pages_is_whole",)),
    Defect("S3: an answer that breaks off is not asked for again", "storage/s3_calls.py:S3Calls._content",
           "if not left:", "if True:", (f"{_CLIENT}::test_an_answer_that_breaks_off_is_asked_for_again",)),
    Defect("S3: an error that breaks off is an error of urllib3", "storage/s3_calls.py:S3Calls._do",
           "except HTTPError as broken:", "except ZeroDivisionError as broken:",
           (f"{_CLIENT}::test_an_error_of_the_store_that_breaks_off_is_asked_for_again",)),
    Defect("S3: a program of keys that is gone is an object that is gone", "storage/s3_client.py:failure",
           "OSError(ENOKEY, f\"fetching keys failed with {type(failed).__name__}\", path)", "failed", (_KEYS,)),
    Defect("S3: a role that is not there is an object that is not there", "storage/s3_client.py:refusal",
           "failed.operation_name not in _OPERATIONS", "False",
           (f"{_KEYS}::test_a_role_that_is_not_there_is_not_a_file_that_is_missing",)),
    Defect("S3: keys that were withdrawn are kept", "storage/s3_client.py:S3Client.renew",
           "if _has_keys(self._options):", "if True:", (_KEYS,)),
    Defect("S3: each request that is refused fetches keys", "storage/s3_client.py:S3Client.renew",
           "if self._made is None or self._made[1] is not refused:", "if self._made is None:", (_KEYS,)),
    Defect("a hold outlives its query", "spark/query/ended.py:_watch", "if run.is_over():", "if False:", (_HOLDS,)),
    # -- files that have their final names at once
    Defect("what an older copy of the journal takes for nobody's goes", "table/history/deletion.py:_is_named",
           "if manifest in names:", "if True:\n                continue\n            if False:", (_FINAL_NAMES,)),
    Defect("what a paused driver may yet record is swept", "journal/announced.py:Announcement.may_get_its_record",
           "not self.asks or any(", "any(", (_FINAL_NAMES, _SLEEPERS)),
    Defect("an incomplete attempt of many rows stays", "journal/announced.py:Announcement.may_get_its_record",
           "not self.asks or any(", "True or any(", (_FINAL_NAMES, _SLEEPERS)),
    Defect("writers do not say where their files come to be", "table/write/folders.py:Folders.unsaid",
           "or not new:", "or new:", (_FINAL_NAMES,)),
    Defect("writers of several tables do not say where their files come to be", "table/routed/routed_writer.py:RoutedWriter.close",
           "self._spec.attempt, unsaid)", "self._spec.attempt, [])", (f"{_FINAL_NAMES_OF_TABLES}::test_tables_that_are_new_in_a_batch_are_announced_with_one_object",)),
    Defect("writers do not say where a table's metadata comes to be", "table/write/folders.py:Folders.unsaid",
           "(*places, *at.metadata)", "places", (f"{_FINAL_NAMES_OF_TABLES}::test_tables_that_are_new_in_a_batch_are_announced_with_one_object",)),
    Defect("what one of several tables names goes from the others", "table/history/deletion.py:delete_unrecorded",
           "        if is_named:\n", "        if is_named:\n            left = [other for other in left if other is not each]\n"
           "            break\n        if False:\n", (f"{_FINAL_NAMES_OF_TABLES}::test_files_in_one_table_stay_where_another_one_names_what_the_attempt_left_there",)),
    Defect("what one of several tables cannot tell goes", "table/history/deletion.py:delete_unrecorded",
           "            return False\n", "            continue\n", (f"{_FINAL_NAMES_OF_TABLES}::test_what_cannot_be_told_stays_until_it_can",)),
    Defect("what is left where a table was dropped stays", "table/history/deletion.py:_is_named_at",
           "    return False\n", "    return True\n", (f"{_FINAL_NAMES_OF_TABLES}::test_a_late_file_in_the_other_table_goes_whether_or_not_the_table_is_there",)),
    Defect("files that are staged beside others stay", "sinks/paimon/writing.py:FinalNames.named",
           "if unsaid or not self._told.keys() >= folders.keys():", "if unsaid:", (f"{_FINAL_NAMES_OF_TABLES}::test_rows_that_begin_a_table_beside_others_leave_nothing_in_staging",)),
    Defect("a record of dead letters with final names looks like one of earlier code", "journal/record_format.py:encode_record",
           " or any(named)", "", (f"{_FINAL_NAMES_OF_TABLES}::test_a_record_whose_dead_letters_have_their_final_names_has_a_version_that_older_code_does_not_publish",)),
    Defect("what a failed attempt announced is forgotten", "journal/staging.py:Staging.discard",
           "            self.has_more(int(match[2]), staging)\n", "            self._io.delete_tree(staging)\n", (_FINAL_NAMES,)),
    Defect("lists that were written for another base are used", "table/commit/tries.py:Looking.usable_ahead",
           "found.newest == ahead.newest", "True", (_FINAL_NAMES,)),
    Defect("lists that were written for another base stay", "table/commit/tries.py:Looking.usable_ahead",
           "        delete(self._table, ahead.files.own, Look.SINCE_TRY, durable=False)\n", "", (_FINAL_NAMES,)),
    Defect("a snapshot is marked before it is known to have come in time", "protocol/run/publish_queue.py:PublishQueue._finish",
           "        if outcome.settle is not None:\n", "        if False:\n", (_FINAL_NAMES,)),
    Defect("what is to be done beside the next batch is never done", "protocol/run/publish_schedule.py:PublishSchedule.stop",
           "            self._settle()\n", "", (_FINAL_NAMES,)),
    Defect("a record of files with final names looks like one of earlier code", "journal/record_format.py:encode_record",
           "        version = _WITH_FINAL_NAMES\n", "        pass\n", (_FINAL_NAMES,)),
    Defect("answers of a look are kept when the next look has failed", "storage/reading.py:AskedAhead.keeping",
           "self._of.kept = {}", "pass", (_ASKED_AHEAD,)),
    Defect("some answers of an earlier look count beside new ones", "storage/reading.py:AskedAhead.recent",
           "is_recent and kept.keys() >= self._asks(questions).keys()", "is_recent", (_ASKED_AHEAD,)),
    Defect("what an attempt began on is told by its number alone", "table/history/deletion.py:_is_named",
           "before is None or not uuid or before.uuid != uuid", "False", (_FINAL_NAMES,)),
    Defect("lists of a snapshot made after a sleep are not looked for", "table/history/whole.py:Whole.has_all_of",
           "knows_lists=False", "knows_lists=True", (_FINAL_NAMES,)),
    Defect("a snapshot made after a sleep is checked beside the next batch", "table/commit/table_commit.py:TableCommit._try_once",
           "found.base.is_long_ago()", "False", (_FINAL_NAMES,)),
)
