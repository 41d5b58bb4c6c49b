"""The ways on that take no more than an option, a name or another start."""

import re

from tests.walks.judge import Judge
from tests.walks.queries import Query
from tests.walks.words import SECOND


class Answers(Judge):
    """Each method takes one way on; see ``operators.py``."""

    def _file_column(self, query: Query, token: str, text: str) -> None:
        query.options |= {"file_column": "file", "accept_as_same": token}

    def _republish(self, query: Query, _: str, text: str) -> None:
        query.options["on_rollback"] = "republish"

    def _first_name(self, query: Query, name: str, text: str) -> None:
        query.name, query.went_back = name, True

    def _own_first_name(self, query: Query, _: str, text: str) -> None:
        """The operator knows which of the names it was: those of second sinks have a suffix."""
        query.name = next(name for name in re.findall(r"'([^']+)', up to batch", text) if SECOND not in name)

    def _once_under_first(self, query: Query, name: str, text: str) -> None:
        """The journal of that name has what the table lacks; afterwards an error sends the query back."""
        query.options.pop("adopt_from_batch", None)
        query.options["on_rollback"] = "republish"
        if name != query.name:
            query.causes.add("renamed")
        self._first_name(query, name, text)

    def _position_columns(self, query: Query, _: str, text: str) -> None:
        query.options["position_columns"] = ("topic", "partition", "offset")

    def _own_run(self, query: Query, _: str, text: str) -> None:
        query.rows_of_job.name = f"run-{self._world.new_id()}"

    def _one_call(self, query: Query, _: str, text: str) -> None:
        query.halves, query.at_once = False, 0

    def _stop_other(self, query: Query, _: str, text: str) -> None:
        """The other driver is an earlier one of this same query. The operator knows that, and ends it."""
        self._world.end_sleepers()

    def _restart(self, query: Query, _: str, text: str) -> None:
        """Nothing has to be done: the next event starts the query."""

    _stop = _restart
