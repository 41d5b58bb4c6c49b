"""What is asked of the catalog of PostgreSQL, and what a session of ours is given."""

from typing import Any

_WITH_TRANSACTION_TIMEOUT = 170_000
# Not by what the table itself says of rules (relhasrules): that stays true when they are dropped.
TABLE = """
SELECT c.oid, c.relkind::text, c.relpersistence::text,
    EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid), pg_catalog.row_security_active(c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind <> 'i'
"""
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, a.atttypmod, a.attnotnull,
    a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
    coalesce((to_jsonb(co) ->> 'collisdeterministic')::bool, true)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
INDEXES = """
SELECT i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid, array(
    SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
) FROM pg_catalog.pg_index i WHERE i.indrelid = %s AND i.indisunique
"""
BASES = """
SELECT a.attname, t.typname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    AND t.typnamespace = 'pg_catalog'::regnamespace
"""
PARTITIONS = """
WITH RECURSIVE parts AS (
    SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = %s
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN parts p ON i.inhparent = p.inhrelid
)
SELECT c.relname FROM parts p JOIN pg_catalog.pg_class c ON c.oid = p.inhrelid
WHERE c.relkind = 'f' OR c.relpersistence <> 'p' ORDER BY c.relname LIMIT 1
"""
# A part of a row is computed by an expression, which may fail, or stands in an index, which takes no long values.
RULES = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = %s AND contype <> 'n')
    OR EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = %s AND NOT tgisinternal)
    OR EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attgenerated <> '')
    OR EXISTS (SELECT FROM pg_catalog.pg_index WHERE indrelid = %s AND (indexprs IS NOT NULL OR indpred IS NOT NULL))
    OR EXISTS (
        SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
        WHERE i.indrelid = %s AND a.attnum = ANY (i.indkey) AND a.attlen = -1
    )
"""


def settings(connection: Any, limits_s: tuple[int, int], *, is_local: bool) -> str:
    """The statement that gives a session, or its transaction alone, the settings that we need.

    limits_s: for waiting for a lock, and for a transaction that stands still.
    """
    values = {
        "statement_timeout": "'0'",  # else a large batch never comes to its end, however often it is tried
        "default_transaction_isolation": "'read committed'",
        "lock_timeout": f"'{limits_s[0]}s'",
        "idle_in_transaction_session_timeout": f"'{limits_s[1]}s'",
        "timezone": "'UTC'",
        "datestyle": "'ISO, YMD'",
        "client_encoding": "'UTF8'",
        # A commit that is only promised may be lost with the server, after we have said that it is done.
        "synchronous_commit": "coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on')",
    }
    if connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT:
        values["transaction_timeout"] = "'0'"
    end = "true" if is_local else "false"
    return "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', {value}, {end})" for name, value in values.items())
