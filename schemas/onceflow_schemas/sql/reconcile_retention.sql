-- What the reconciler asks the database to delete of its own.  Isolation: READ COMMITTED; each call is a short transaction of its own.
-- The functions lock the lease's row (shared), their line in table retention, and rows that no look touches any more; rows that somebody
-- holds are passed over.

-- name: limits
-- Limits of this transaction only.  Behind a migration that waits for a table nobody stands in its queue.
SELECT set_config('lock_timeout', %(lock_timeout)s, true), set_config('statement_timeout', %(statement_timeout)s, true);

-- name: due
-- Tables that were not swept for so long.
SELECT name FROM unnest(ARRAY['finding', 'reconcile_hour']) AS asked (name)
WHERE NOT EXISTS (SELECT FROM onceflow.retention AS line
                  WHERE line.name = asked.name AND line.swept_at > clock_timestamp() - %(seconds)s * interval '1 second');

-- name: finding
SELECT deleted, swept FROM onceflow.retire_findings(
    %(lease)s, %(token)s, %(keep_days)s, %(asked_at)s, %(kinds_kept)s::text[], %(kinds_passing)s::text[], %(rows_max)s);

-- name: reconcile_hour
SELECT deleted, swept FROM onceflow.retire_hours(%(lease)s, %(token)s, %(asked_at)s, %(rows_max)s);
