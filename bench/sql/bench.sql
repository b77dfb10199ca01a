-- The bench's own tables and questions.

-- name: tables
-- What handlers with one SQL statement write to, and what the peers write instead of our tables.
CREATE SCHEMA bench;
CREATE TABLE bench.effect (event_id text NOT NULL, amount bigint NOT NULL);
CREATE TABLE bench.event (
    id text PRIMARY KEY,
    type text NOT NULL,
    object_id text NOT NULL,
    created timestamptz NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE bench.outcome (
    id uuid PRIMARY KEY,
    type text NOT NULL,
    key text NOT NULL,
    value bytea NOT NULL,
    event_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at timestamptz
);
CREATE INDEX outcome_unsent ON bench.outcome (created_at) WHERE sent_at IS NULL;
CREATE TABLE bench.webhook (
    event_id text PRIMARY KEY,
    type text NOT NULL,
    body bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: done_by_progress
SELECT coalesce(sum(next_offset), 0)::bigint FROM onceflow.progress;

-- name: positions_back
-- As an operator's decision puts them back to the begin of the log.
UPDATE onceflow.progress
SET next_offset = 0, batch_end = 0, fingerprint = NULL, epoch = epoch + 1, clean = true, unclean_ends = 0;

-- name: done_by_events
SELECT count(*) FROM bench.event;

-- name: quarantined
SELECT count(*), min(code || ': ' || detail) FROM onceflow.quarantine;

-- name: facts_of_others
-- Facts that events of long ago have claimed.
INSERT INTO onceflow.fact (namespace, key, cause)
SELECT 'bench', key, 'event:acct_bench/test/evt_long_ago' FROM unnest(%(keys)s::text[]) AS offered (key);

-- name: settle
-- What an earlier side has left to do must not fall into the next side's time.
CHECKPOINT;

-- name: shared_out
-- Partitions, their owners, and the fewest that one owner has.
SELECT (SELECT count(*) FROM onceflow.progress), count(*), min(partitions)
FROM (SELECT count(*) AS partitions FROM onceflow.progress GROUP BY owner) AS share;

-- name: published
SELECT coalesce(sum(published_seq), 0)::bigint FROM onceflow.lane;

-- name: unpublished
SELECT coalesce(sum(head_seq - published_seq), 0)::bigint FROM onceflow.lane;

-- name: brought
-- Missed events that have their marker.
SELECT count(*) FROM onceflow.inbox WHERE event_id LIKE 'evt_M%';
