-- The statements of one batch transaction.  Isolation: READ COMMITTED; every check raises on the server.
-- Global lock order: inbox -> object_guard -> user rows -> facts -> operations -> parked_key -> progress -> lanes.

-- name: limits
-- Limits of this transaction only (SET would leak to other clients of a pooler).  transaction_timeout is the only one that
-- ends a backend which waits for its client in the middle of a pipeline, so that one stopped process cannot hold a lane.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('transaction_timeout', %(transaction_ms_max)s, true);

-- name: limits_before_17
-- The next best: it ends a transaction whose client was stopped, except in the moments of a pipeline.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(transaction_ms_max)s, true);

-- name: session_reset
-- What a handler SET outlives its event and, without LOCAL, the transaction: search_path, time limits, durability.
RESET ALL;

-- name: session_reset_role
-- RESET ALL leaves the role alone.
RESET ROLE;

-- name: session_reset_authorization
RESET SESSION AUTHORIZATION;

-- name: session_check
-- A transaction that a handler made read only cannot be made writable again.
SELECT onceflow.ensure(current_setting('transaction_read_only') = 'off', 'OF002', 'a handler made the batch read only');

-- name: guard_open
-- The deferred reference of this row makes every COMMIT fail until the tail deletes it.
INSERT INTO onceflow.batch_guard (id, must_be_gone) VALUES (%(guard)s, -%(guard)s);

-- name: claim
-- Takes the markers of all offered events at once.  The caller sorts them, so that two batches with the same events in
-- another order wait for each other instead of deadlocking.  A marker of an unfinished transaction is waited for.
INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, api_version, topic_id, partition,
                            "offset", body_sha256, event_created, received_at, handler_set)
SELECT account, mode, event_id, state, type, object_id, api_version, topic_id, partition, "offset", body_sha256,
       event_created, received_at, %(handler_set)s
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(states)s::text[], %(types)s::text[],
            %(object_ids)s::text[], %(api_versions)s::text[], %(topic_ids)s::text[], %(partitions)s::integer[],
            %(offsets)s::bigint[], %(body_sha256s)s::bytea[], %(createds)s::timestamptz[],
            %(received_ats)s::timestamptz[])
     AS offered (account, mode, event_id, state, type, object_id, api_version, topic_id, partition, "offset",
                 body_sha256, event_created, received_at)
ON CONFLICT DO NOTHING
RETURNING account, mode, event_id;

-- name: other_content
-- Markers whose first record had other bytes than the record offered now.  Index: primary key of inbox.
SELECT inbox.account, inbox.mode, inbox.event_id, inbox.body_sha256, inbox.api_version
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(body_sha256s)s::bytea[])
     AS offered (account, mode, event_id, body_sha256)
JOIN onceflow.inbox USING (account, mode, event_id)
WHERE inbox.body_sha256 <> offered.body_sha256;

-- name: known_facts
-- Which of these facts are taken, and by whom; of those that only the topic knows, which cause may still claim them.
-- Index: primary keys of fact and imported_fact.
SELECT namespace, key, fact.cause, NULL AS kept_for
FROM unnest(%(namespaces)s::text[], %(keys)s::text[]) AS asked (namespace, key)
JOIN onceflow.fact USING (namespace, key)
UNION ALL
SELECT asked.namespace, asked.key, NULL, imported_fact.cause
FROM unnest(%(namespaces)s::text[], %(keys)s::text[]) AS asked (namespace, key)
JOIN onceflow.imported_fact ON imported_fact.digest = onceflow.fact_digest(asked.namespace, asked.key)
LEFT JOIN onceflow.fact ON fact.namespace = asked.namespace AND fact.key = asked.key
WHERE fact.cause IS NULL AND EXISTS (SELECT FROM onceflow.imported_fact);

-- name: savepoint
SAVEPOINT onceflow_chunk;

-- name: savepoint_release
RELEASE SAVEPOINT onceflow_chunk;

-- name: savepoint_rollback
ROLLBACK TO SAVEPOINT onceflow_chunk;

-- name: tail_facts
-- Sorted by the caller for the lock order; a shortage means that somebody else's event has claimed one meanwhile, or that the topic
-- knows another cause of it.  While the topic's outcomes are still coming back, nobody knows which facts are free.
WITH offered AS MATERIALIZED (
    SELECT * FROM unnest(%(namespaces)s::text[], %(keys)s::text[], %(causes)s::text[]) AS offered (namespace, key, cause)
), taken AS (
    INSERT INTO onceflow.fact (namespace, key, cause)
    SELECT namespace, key, cause FROM offered
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM taken) = %(expected)s, 'OF003', 'a fact is taken'),
       onceflow.ensure(
           NOT EXISTS (SELECT FROM onceflow.imported_fact) OR NOT EXISTS (
               SELECT FROM offered
               JOIN onceflow.imported_fact ON imported_fact.digest = onceflow.fact_digest(offered.namespace, offered.key)
               WHERE imported_fact.cause <> offered.cause),
           'OF003', 'a fact is another''s in the topic'),
       onceflow.ensure(
           NOT EXISTS (SELECT FROM onceflow.lane WHERE state IN ('behind', 'recovering')),
           'OF004', 'facts are coming back from the topic');

-- name: tail_fact_claims
-- Who said a fact again.  After tail_facts, so that the fact is there, unless its cause is known from the topic alone; its own
-- claimant needs no second row.
INSERT INTO onceflow.fact_claim (namespace, key, cause)
SELECT offered.namespace, offered.key, offered.cause
FROM unnest(%(namespaces)s::text[], %(keys)s::text[], %(causes)s::text[]) AS offered (namespace, key, cause)
LEFT JOIN onceflow.fact USING (namespace, key)
WHERE fact.cause <> offered.cause OR fact.cause IS NULL AND EXISTS (
    SELECT FROM onceflow.imported_fact
    WHERE imported_fact.digest = onceflow.fact_digest(offered.namespace, offered.key) AND imported_fact.cause <> offered.cause)
ON CONFLICT DO NOTHING;

-- name: tail_states
-- Markers of events that failed or must wait: they were claimed with the state that they should have had.
UPDATE onceflow.inbox SET state = given.state
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(states)s::text[])
     AS given (account, mode, event_id, state)
WHERE inbox.account = given.account AND inbox.mode = given.mode AND inbox.event_id = given.event_id;

-- name: tail_ignored
-- Why handlers did nothing with events, beside markers that this transaction holds.
UPDATE onceflow.inbox SET ignored_because = given.reason
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(reasons)s::text[])
     AS given (account, mode, event_id, reason)
WHERE inbox.account = given.account AND inbox.mode = given.mode AND inbox.event_id = given.event_id;

-- name: tail_quarantine
-- A record that is read again is not quarantined twice; one that was retried and failed again waits for a person again.
INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail, handler,
                                 traceback, key, value, body, headers, record_time, order_key, type, failure_group, attempts)
SELECT * FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(topics)s::text[],
                     %(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(codes)s::text[],
                     %(details)s::text[], %(handlers)s::text[], %(tracebacks)s::text[], %(keys)s::bytea[],
                     %(values)s::bytea[], %(bodies)s::bytea[], %(headers)s::json[], %(record_times)s::timestamptz[],
                     %(order_keys)s::text[], %(types)s::text[], %(failure_groups)s::text[], %(attempts)s::integer[])
ON CONFLICT (topic_id, partition, "offset") DO UPDATE
SET code = excluded.code, detail = excluded.detail, handler = excluded.handler, traceback = excluded.traceback,
    order_key = excluded.order_key, failure_group = excluded.failure_group, attempts = excluded.attempts,
    quarantined_at = clock_timestamp(), decided_at = NULL, decided_by = NULL, decision = NULL, reason = NULL,
    dead_lettered_at = NULL, dead_letter_code = NULL
WHERE quarantine.decision = 'retried';

-- name: tail_progress
-- The fence: epoch and the next offset as this process read them.  Nothing of the batch survives when it fails.
WITH given AS (
    SELECT * FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(epochs)s::bigint[],
                         %(from_offsets)s::bigint[], %(next_offsets)s::bigint[], %(fingerprints)s::text[])
         AS given (topic_id, partition, epoch, from_offset, next_offset, fingerprint)
), moved AS (
    UPDATE onceflow.progress
    SET next_offset = given.next_offset, fingerprint = given.fingerprint, batch_end = given.next_offset,
        unclean_ends = 0, waiting = NULL, updated_at = clock_timestamp()
    FROM given
    WHERE progress.cluster_id = %(cluster_id)s AND progress.topic_id = given.topic_id
      AND progress.partition = given.partition AND progress.epoch = given.epoch
      AND progress.next_offset = given.from_offset
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM moved) = %(expected)s, 'OF001', 'another epoch holds a partition');

-- name: tail_guard
-- A handler that rolled the transaction back has taken the guard's row with it.
WITH closed AS (DELETE FROM onceflow.batch_guard WHERE id = %(guard)s RETURNING 1)
SELECT onceflow.ensure((SELECT count(*) FROM closed) = 1, 'OF002', 'a handler ended the transaction of the batch');

-- name: tail_outcomes
-- The last statement before COMMIT, so that no lane is locked while bytes are on their way.  Lanes are locked in their
-- order; the head row hands out the sequence, so commit order is sequence order and a rollback leaves no gap.
-- What came back from the topic after a restore is known: a handler that runs again for it gets no second sequence, and where it
-- decides otherwise the topic's outcome stands and the difference is kept.  Index: outcome_imported, empty as a rule.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::integer[], %(outcome_ids)s::uuid[], %(revisions)s::integer[], %(ce_ids)s::uuid[],
                         %(types)s::text[], %(keys)s::text[], %(bodies)s::bytea[], %(headers)s::json[], %(causes)s::text[])
         WITH ORDINALITY AS item (lane, outcome_id, revision, ce_id, type, key, value, headers, cause, position)
), known AS MATERIALIZED (
    SELECT given.position, outcome.lane, outcome.seq, given.value, given.cause,
           given.value <> outcome.value AND outcome.withheld IS NULL AS contradicts
    FROM given JOIN onceflow.outcome USING (outcome_id, revision)
    WHERE outcome.imported_at IS NOT NULL
), item AS (
    SELECT * FROM given WHERE position NOT IN (SELECT position FROM known)
), told AS (
    INSERT INTO onceflow.outcome_contradiction (lane, seq, value, cause)
    SELECT lane, seq, value, cause FROM known WHERE contradicts
    ON CONFLICT DO NOTHING
), head AS MATERIALIZED (
    SELECT lane, head_seq, state FROM onceflow.lane
    WHERE lane IN (SELECT lane FROM given)
    ORDER BY lane
    FOR UPDATE
), taken AS (
    SELECT lane, count(*) AS outcomes FROM item GROUP BY lane
), moved AS (
    UPDATE onceflow.lane SET head_seq = head.head_seq + taken.outcomes
    FROM head JOIN taken USING (lane)
    WHERE lane.lane = head.lane
), added AS (
    INSERT INTO onceflow.outcome (lane, seq, outcome_id, revision, ce_id, type, key, value, headers, cause)
    SELECT item.lane, head.head_seq + row_number() OVER (PARTITION BY item.lane ORDER BY item.position),
           item.outcome_id, item.revision, item.ce_id, item.type, item.key, item.value, item.headers, item.cause
    FROM item JOIN head USING (lane)
    RETURNING 1
)
SELECT onceflow.ensure(
    (SELECT count(*) FROM added) + (SELECT count(*) FROM known) = %(expected)s
        AND (SELECT bool_and(state IN ('ok', 'stopped:unpublishable')) FROM head),
    'OF004', 'a lane hands out no sequence');

-- name: commit
COMMIT;
