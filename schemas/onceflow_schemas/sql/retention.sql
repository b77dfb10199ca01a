-- What the maintenance duty asks for, and what others need to know of what it has deleted.  Isolation: READ COMMITTED; each call
-- is a short transaction of its own.  The functions lock the lease's row (shared), their line in table retention, and rows that
-- are older than anything that a batch touches; rows that somebody holds are passed over.

-- name: limits
-- Limits of this transaction only.  Behind a migration that waits for a table the duty gives up instead of standing in its queue.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true);

-- name: markers
SELECT deleted, swept FROM onceflow.retire_markers(%(name)s, %(token)s, %(keep_days)s, %(asked_at)s, %(pages_max)s);

-- name: outcomes
SELECT deleted, swept FROM onceflow.retire_outcomes(%(name)s, %(token)s, %(keep_days)s, %(asked_at)s, %(lane)s, %(rows_max)s);

-- name: quarantine
SELECT deleted, swept FROM onceflow.retire_quarantine(%(name)s, %(token)s, %(keep_days)s, %(asked_at)s, %(rows_max)s);

-- name: reads
SELECT deleted, swept FROM onceflow.retire_reads(%(name)s, %(token)s, %(keep_days)s, %(asked_at)s, %(rows_max)s);

-- name: lanes
SELECT lane FROM onceflow.lane ORDER BY lane;

-- name: book
-- An infinite time is no datetime: null says that nothing was ever deleted.
SELECT name, nullif(gone_before, '-infinity') AS gone_before, deleted, oldest, swept_at, clock_timestamp() AS now FROM onceflow.retention ORDER BY name;

-- name: gone
-- From when on all markers, and all outcomes, are there; -infinity comes as null, for nothing was ever deleted.
SELECT nullif(max(gone_before) FILTER (WHERE name = 'inbox'), '-infinity') AS markers,
       nullif(max(gone_before) FILTER (WHERE name LIKE 'outcome/%%'), '-infinity') AS outcomes
FROM onceflow.retention;
