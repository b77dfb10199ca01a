-- Replay: what is known of events that are read again.  Isolation: READ COMMITTED.

-- name: markers
-- What the inbox says about these events, before their bodies are parsed.  Index: primary key of inbox.
SELECT inbox.account, inbox.mode, inbox.event_id, inbox.state
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS asked (account, mode, event_id)
JOIN onceflow.inbox USING (account, mode, event_id);

-- name: positions
-- Where the processors stand: what lies behind is theirs to run.  Index: primary key of progress.
SELECT partition, next_offset FROM onceflow.progress
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s;

-- name: claim_ignored_too
-- As claim of a batch; markers that say ignored are taken up as well, where the event would be processed now.  Whoever
-- waits for such a row finds it processed, and leaves it.
WITH offered AS MATERIALIZED (
    SELECT * FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(states)s::text[],
                         %(types)s::text[], %(object_ids)s::text[], %(api_versions)s::text[], %(topic_ids)s::text[],
                         %(partitions)s::integer[], %(offsets)s::bigint[], %(body_sha256s)s::bytea[],
                         %(createds)s::timestamptz[], %(received_ats)s::timestamptz[])
         AS offered (account, mode, event_id, state, type, object_id, api_version, topic_id, partition, "offset",
                     body_sha256, event_created, received_at)
), added AS (
    INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, api_version, topic_id, partition,
                                "offset", body_sha256, event_created, received_at, handler_set)
    SELECT account, mode, event_id, state, type, object_id, api_version, topic_id, partition, "offset", body_sha256,
           event_created, received_at, %(handler_set)s
    FROM offered
    ON CONFLICT DO NOTHING
    RETURNING account, mode, event_id
), taken_up AS (
    UPDATE onceflow.inbox
    SET state = offered.state, handler_set = %(handler_set)s, processed_at = clock_timestamp()
    FROM offered
    WHERE inbox.account = offered.account AND inbox.mode = offered.mode AND inbox.event_id = offered.event_id
      AND inbox.state = 'ignored' AND offered.state = 'processed' AND inbox.body_sha256 = offered.body_sha256
    RETURNING inbox.account, inbox.mode, inbox.event_id
)
SELECT account, mode, event_id FROM added UNION ALL SELECT account, mode, event_id FROM taken_up;

-- name: run_begin
INSERT INTO onceflow.replay_run (kind, cluster_id, topic_id, topic, filters, counts, owner, who, reason)
VALUES (%(kind)s, %(cluster_id)s, %(topic_id)s, %(topic)s, %(filters)s, %(counts)s, %(owner)s, %(who)s, %(reason)s)
RETURNING id, epoch;

-- name: run_stretches
INSERT INTO onceflow.replay_stretch (run_id, partition, from_offset, next_offset, to_offset)
SELECT %(run_id)s, partition, first, first, last
FROM unnest(%(partitions)s::integer[], %(firsts)s::bigint[], %(ends)s::bigint[]) AS given (partition, first, last);

-- name: run_take
-- Goes on with a run: whoever had it before is fenced.  It waits for a batch that holds the row.
UPDATE onceflow.replay_run SET epoch = epoch + 1, owner = %(owner)s, updated_at = clock_timestamp()
WHERE id = %(run_id)s AND state = 'running'
RETURNING id, kind, epoch, cluster_id, topic_id, topic, filters, counts, who, reason;

-- name: run_state
SELECT state FROM onceflow.replay_run WHERE id = %(run_id)s;

-- name: run_left
SELECT partition, next_offset, to_offset FROM onceflow.replay_stretch WHERE run_id = %(run_id)s ORDER BY partition;

-- name: run_moved
-- In the place of progress: the fence is the run's epoch, and the next offset as this process knows it.
WITH run AS (
    UPDATE onceflow.replay_run SET counts = %(counts)s, updated_at = clock_timestamp()
    WHERE id = %(run_id)s AND epoch = %(epoch)s AND state = 'running'
    RETURNING 1
), moved AS (
    UPDATE onceflow.replay_stretch SET next_offset = %(next_offset)s
    WHERE run_id = %(run_id)s AND partition = %(partition)s AND next_offset = %(from_offset)s
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM run) = 1 AND (SELECT count(*) FROM moved) = 1,
                       'OF001', 'another process goes on with this replay');

-- name: run_done
WITH run AS (
    UPDATE onceflow.replay_run
    SET state = 'done', counts = %(counts)s, updated_at = clock_timestamp(), ended_at = clock_timestamp()
    WHERE id = %(run_id)s AND epoch = %(epoch)s AND state = 'running'
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM run) = 1, 'OF001', 'another process goes on with this replay');

-- name: rerun_look
-- What is known of events that may run again.  Index: primary key of inbox.
SELECT inbox.account, inbox.mode, inbox.event_id, inbox.state, inbox.processed_at, inbox.is_stale, inbox.body_sha256
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS asked (account, mode, event_id)
JOIN onceflow.inbox USING (account, mode, event_id);

-- name: rerun_lock
-- As rerun_look, and whoever runs one of them again at the same time waits; in the order in which batches claim.
SELECT inbox.account, inbox.mode, inbox.event_id, inbox.state, inbox.processed_at, inbox.is_stale, inbox.body_sha256
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS asked (account, mode, event_id)
JOIN onceflow.inbox USING (account, mode, event_id)
ORDER BY inbox.account, inbox.mode, inbox.event_id
FOR NO KEY UPDATE OF inbox;

-- name: savepoint_event
SAVEPOINT onceflow_event;

-- name: rollback_event
ROLLBACK TO SAVEPOINT onceflow_event;

-- name: release_event
RELEASE SAVEPOINT onceflow_event;

-- name: savepoint_handler
SAVEPOINT onceflow_handler;

-- name: rollback_handler
ROLLBACK TO SAVEPOINT onceflow_handler;

-- name: release_handler
RELEASE SAVEPOINT onceflow_handler;

-- name: fact_cause
-- Who claimed a fact first, and whether its row is there: after a restore the topic alone may know.  Index: primary keys.
SELECT cause, true AS has_row FROM onceflow.fact WHERE namespace = %(namespace)s AND key = %(key)s
UNION ALL
SELECT cause, false FROM onceflow.imported_fact WHERE digest = onceflow.fact_digest(%(namespace)s, %(key)s)
ORDER BY has_row DESC
LIMIT 1;

-- name: booked_by
-- What an event added to a running total, and the total.  Index: primary keys.
SELECT booked.total, booking.difference
FROM onceflow.booked
LEFT JOIN onceflow.booking ON booking.namespace = booked.namespace AND booking.key = booked.key AND booking.cause = %(cause)s
WHERE booked.namespace = %(namespace)s AND booked.key = %(key)s;

-- name: highest_revisions
-- Index: outcome (outcome_id, revision).
SELECT DISTINCT ON (outcome_id) outcome_id, revision, value
FROM onceflow.outcome
WHERE outcome_id = ANY(%(outcome_ids)s)
ORDER BY outcome_id, revision DESC;

-- name: outcomes_of
-- What events gave when they were processed, and when they were run again: by the times at which that can have been, since an
-- index on the cause would cost every insert.  A rerun concerns them when it gave something new after the first of them was
-- processed; what the run in hand has given is of other events.  Index: outcome (created_at), block ranges.
SELECT outcome_id, type, key, cause FROM onceflow.outcome
WHERE created_at BETWEEN %(first)s AND %(last)s::timestamptz + interval '15 minutes' AND cause = ANY(%(causes)s::text[])
UNION
SELECT outcome.outcome_id, outcome.type, outcome.key, outcome.cause
FROM onceflow.replay_run
JOIN onceflow.outcome ON outcome.created_at BETWEEN replay_run.began_at AND replay_run.updated_at + interval '15 minutes'
WHERE replay_run.kind = 'rerun' AND replay_run.id IS DISTINCT FROM %(run_id)s AND replay_run.updated_at >= %(first)s
  AND (replay_run.counts -> 'done' ->> 'new')::bigint > 0 AND outcome.cause = ANY(%(causes)s::text[]);
