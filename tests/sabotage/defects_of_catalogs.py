"""Defects of the registration in catalogs: a name that leads elsewhere, and a catalog that gets in a query's way."""

from tests.sabotage.defect import Defect

_HIVE, _SEVERAL, _RULES = "tests/catalogs/test_hive.py", "tests/catalogs/test_several.py", "tests/catalogs/test_properties.py"
_ADVICE = "tests/advice/test_catalogs.py::test_a_name_that_leads_to_where_the_table_was"
_DROPPED = "test_a_table_that_was_dropped_in_the_catalog_stays_dropped_until_the_next_start"
_REST = "tests/catalogs/test_rest.py"
_REGISTRATION, _CARE = "catalogs/registration.py", "sinks/paimon/care/registering.py"

OF_CATALOGS = (
    Defect("another table under the name is taken for this one", f"{_REGISTRATION}:Registration.look",
           'other_than(named, found, moved_from) if found else ""', '""', (_HIVE,)),
    Defect("another table under the name is written over", "catalogs/hive.py:HiveCatalog._update",
           "other_than(named, entry, moved_from)", '""', (_SEVERAL,)),
    Defect("the place of an entry is not looked at", "catalogs/catalog.py:other_than",
           "not is_one_place(entry.location, named.location)", "False", (_RULES,)),
    Defect("a new table is made although nobody knows whether its name is free", f"{_CARE}:Registering.check_new",
           "raise unanswered(self._unanswered) from self._unanswered", "pass", (_HIVE,)),
    Defect("a catalog that is away ends a start of a table that is there", f"{_CARE}:Registering.look",
           "self._properties is not None and self._properties.required", "True", (_HIVE,)),
    Defect("what a catalog refuses ends the query", f"{_REGISTRATION}:Registration.register",
           "self._failed(failed)", "raise", (_HIVE,)),
    Defect("each batch asks the catalog", f"{_REGISTRATION}:Registration.is_due", "schema.id == self._done", "False", (_HIVE,)),
    Defect("what has failed is never tried again", f"{_REGISTRATION}:Registration.is_due",
           "self._clock.monotonic_ms() - self._failed_ms >= RETRY_MS", "False", (_HIVE,)),
    Defect("new columns do not reach the catalog", "catalogs/hive.py:HiveCatalog._update",
           "there == hive_table.as_stored(columns)", "bool(there)", (_HIVE,)),
    Defect("an update throws away what others have written", "catalogs/hive.py:HiveCatalog._update",
           "{**parameters, **wanted}", "dict(wanted)", (_HIVE,)),
    Defect("a table that a REST catalog commits is written by its folder", "catalogs/rest.py:_entry",
           'not found.get("isExternal")', "False", (_REST,)),
    Defect("other columns in a REST catalog count as these", "catalogs/rest.py:RestCatalog._check_same",
           "_columns(found.get(\"schema\")) != _columns(json.loads(schema.to_json()))", "False", (_REST,)),
    Defect("a table that was dropped in the catalog comes back with a new column", f"{_REGISTRATION}:Registration.register",
           "may_create=self._done == _NEVER", "may_create=True", (f"{_HIVE}::{_DROPPED}",)),
    Defect("the entry of a table that was moved keeps its place", "catalogs/hive.py:HiveCatalog._update",
           "is_here and there ==", "there ==", (_ADVICE,)),
    Defect("the place among an entry's parameters stays the old one", "catalogs/hive.py:HiveCatalog._update",
           "not is_here and hive_table.LOCATION_PARAMETER in parameters", "False", (_ADVICE,)),
    Defect("the name of another table is given to this one", "maintenance/repairing.py:_check_was",
           "there.table_id != table.table_id", "False", (_SEVERAL,)),
    Defect("who comes second fails", "catalogs/hive.py:HiveCatalog._put",
           "suppress(self._types.AlreadyExistsException)", "suppress()", (_HIVE,)),
    Defect("a batch fails by a name that no catalog takes", "sinks/paimon/care/registering.py:Registering._is_due",
           "except Misuse as refused:", "except ZeroDivisionError as refused:", (_SEVERAL,)),
)
