"""One-line defects, each of which takes away a guard of the promise, and the tests that must notice it."""

from tests.sabotage.defects_of_batches import OF_BATCHES
from tests.sabotage.defects_of_branches import OF_BRANCHES
from tests.sabotage.defects_of_care import OF_CARE
from tests.sabotage.defects_of_catalogs import OF_CATALOGS
from tests.sabotage.defects_of_commands import OF_COMMANDS
from tests.sabotage.defects_of_compaction import OF_COMPACTION
from tests.sabotage.defects_of_delta import OF_DELTA
from tests.sabotage.defects_of_fan_out import OF_FAN_OUT
from tests.sabotage.defects_of_iceberg_metadata import OF_ICEBERG_METADATA
from tests.sabotage.defects_of_lakes import OF_LAKES
from tests.sabotage.defects_of_metrics import OF_METRICS
from tests.sabotage.defects_of_queries import OF_QUERIES
from tests.sabotage.defects_of_restores import OF_RESTORES
from tests.sabotage.defects_of_sinks import OF_SINKS
from tests.sabotage.defects_of_stores import OF_STORES
from tests.sabotage.defects_of_tables import OF_TABLES

DEFECTS = (
    OF_BATCHES
    + OF_CARE
    + OF_CATALOGS
    + OF_BRANCHES
    + OF_COMPACTION
    + OF_COMMANDS
    + OF_DELTA
    + OF_FAN_OUT
    + OF_ICEBERG_METADATA
    + OF_LAKES
    + OF_METRICS
    + OF_QUERIES
    + OF_RESTORES
    + OF_SINKS
    + OF_STORES
    + OF_TABLES
)
