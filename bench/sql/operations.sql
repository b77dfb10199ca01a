-- What the bench asks about operations.

-- name: first_unsettled
-- By the index of what is unsettled, so that asking takes no time from the workers.
SELECT seq FROM onceflow.operation WHERE state NOT IN ('succeeded', 'failed', 'canceled') ORDER BY state, seq LIMIT 1;

-- name: states
SELECT state, count(*) FROM onceflow.operation WHERE starts_with(subject, %(series)s) GROUP BY state;

-- name: asked_at
-- Seconds since 1970 at which each operation was written, which is before its COMMIT.
SELECT id::text, extract(epoch FROM requested_at)::float8 FROM onceflow.operation WHERE starts_with(subject, %(series)s);
