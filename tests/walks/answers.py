"""The ways on that are gone by an option alone, or by nothing but a start."""

from tests.walks.judge import Judge
from tests.walks.queries import Query


class Answers(Judge):
    """Each method is a way; see ``operators.py``."""

    def _file_column(self, query: Query, token: str, text: str) -> None:
        query.options |= {"file_column": "file", "accept_as_same": token}

    def _republish(self, query: Query, _: str, text: str) -> None:
        query.options["on_rollback"] = "republish"

    def _position_columns(self, query: Query, _: str, text: str) -> None:
        query.options["position_columns"] = ("topic", "partition", "offset")

    def _own_run(self, query: Query, _: str, text: str) -> None:
        query.rows_of_job.name = f"run-{self._world.new_id()}"

    def _one_call(self, query: Query, _: str, text: str) -> None:
        query.halves, query.at_once = False, 0

    def _restart(self, query: Query, _: str, text: str) -> None:
        """Nothing else is to be done."""

    _stop = _restart
