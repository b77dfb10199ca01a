-- The server inserting the rows of the database part by itself: they stand ready in the server.

-- name: staging
CREATE TABLE bench.staged_marker AS SELECT *, 0 AS batch FROM onceflow.inbox WITH NO DATA;
CREATE TABLE bench.staged_outcome AS SELECT *, 0 AS batch FROM onceflow.outcome WITH NO DATA;

-- name: take_markers
INSERT INTO bench.staged_marker
SELECT inbox.*, (row_number() OVER (ORDER BY "offset") - 1) / %(batch_records)s FROM onceflow.inbox;

-- name: take_outcomes
INSERT INTO bench.staged_outcome
SELECT outcome.*, (row_number() OVER (ORDER BY created_at, lane, seq) - 1) / %(batch_records)s FROM onceflow.outcome;

-- name: indexes
CREATE INDEX ON bench.staged_marker (batch);
CREATE INDEX ON bench.staged_outcome (batch);
ANALYZE bench.staged_marker;
ANALYZE bench.staged_outcome;

-- name: empty
TRUNCATE onceflow.inbox, onceflow.outcome, onceflow.outcome_contradiction;

-- name: insert_markers
INSERT INTO onceflow.inbox
SELECT account, mode, event_id, state, type, object_id, api_version, topic_id, partition, "offset", body_sha256,
       event_created, received_at, processed_at, handler_set
FROM bench.staged_marker WHERE batch = %(batch)s;

-- name: insert_outcomes
INSERT INTO onceflow.outcome
SELECT lane, seq, outcome_id, revision, ce_id, type, key, value, headers, cause, withheld, created_at
FROM bench.staged_outcome WHERE batch = %(batch)s;
