-- What the tables alone show: what waits too long, what is leased by nobody, what stands still.  Isolation: READ COMMITTED; nothing
-- is locked.  Each query gives subject, account, mode, facts, amount, currency; the longest waiting first, up to a number.

-- name: parked_too_long
-- Keys whose head was tried again and again for so long.  Table parked_key is small: what waits has left the hot path.
SELECT 'key ' || parked_key.order_key AS subject, parked_key.account, parked_key.mode,
       jsonb_build_object('order_key', parked_key.order_key, 'reason', parked_key.reason, 'since', parked_key.parked_at,
                          'event_id', parked_key.event_id, 'code', parked.code, 'attempts', parked.attempts) AS facts,
       NULL::bigint AS amount, NULL::text AS currency
FROM onceflow.parked_key
LEFT JOIN onceflow.parked
    ON parked.account = parked_key.account AND parked.mode = parked_key.mode AND parked.event_id = parked_key.event_id
WHERE parked_key.reason <> 'quarantined' AND parked_key.parked_at < clock_timestamp() - %(parked_hours)s * interval '1 hour'
ORDER BY parked_key.parked_at
LIMIT %(rows_max)s;

-- name: quarantined_too_long
-- Records about which nobody has decided for so long.  Index: quarantine_undecided.
SELECT 'record ' || topic || '/' || partition || '/' || "offset" AS subject, account, mode,
       jsonb_build_object('topic', topic, 'partition', partition, 'offset', "offset", 'code', code, 'event_id', event_id,
                          'since', quarantined_at, 'order_key', order_key) AS facts,
       NULL::bigint AS amount, NULL::text AS currency
FROM onceflow.quarantine
WHERE decision IS NULL AND quarantined_at < clock_timestamp() - %(quarantined_hours)s * interval '1 hour'
ORDER BY quarantined_at
LIMIT %(rows_max)s;

-- name: operation_unknown_too_long
-- Index: operation_state.
SELECT 'operation ' || id AS subject, account, mode,
       jsonb_build_object('operation_id', id, 'effect', effect, 'about', subject, 'state', state, 'since', requested_at,
                          'external_id', external_id, 'last_error', last_error) AS facts,
       CASE WHEN args ->> 'amount' ~ '^[0-9]{1,15}$' THEN (args ->> 'amount')::bigint END AS amount,
       args ->> 'currency' AS currency
FROM onceflow.operation
WHERE state IN ('unknown', 'review') AND requested_at < clock_timestamp() - %(unknown_minutes)s * interval '1 minute'
ORDER BY requested_at
LIMIT %(rows_max)s;

-- name: lease_expired
-- Operations that are due, and that nobody has taken up since: no worker runs, or none has their effect.  Index: operation_state.
SELECT 'operation ' || id AS subject, account, mode,
       jsonb_build_object('operation_id', id, 'effect', effect, 'about', subject, 'state', state, 'lease_owner', lease_owner,
                          'since', lease_until) AS facts,
       CASE WHEN args ->> 'amount' ~ '^[0-9]{1,15}$' THEN (args ->> 'amount')::bigint END AS amount,
       args ->> 'currency' AS currency
FROM onceflow.operation
WHERE next_attempt_at < clock_timestamp() - %(lease_minutes)s * interval '1 minute' AND next_attempt_at < 'infinity'
  AND state NOT IN ('succeeded', 'failed', 'canceled')
ORDER BY next_attempt_at
LIMIT %(rows_max)s;

-- name: refund_failed_later
-- What was told to have succeeded and failed afterwards: a bank returned a refund.  Index: operation_failed_later.
SELECT 'operation ' || id AS subject, account, mode,
       jsonb_build_object('operation_id', id, 'effect', effect, 'about', subject, 'since', settled_at, 'external_id', external_id)
           AS facts,
       CASE WHEN args ->> 'amount' ~ '^[0-9]{1,15}$' THEN (args ->> 'amount')::bigint END AS amount,
       args ->> 'currency' AS currency
FROM onceflow.operation
WHERE state = 'failed' AND 'succeeded' = ANY (told)
ORDER BY settled_at DESC
LIMIT %(rows_max)s;

-- name: outcome_unpublished_too_long
SELECT 'lane ' || lane.lane AS subject, NULL::text AS account, NULL::text AS mode,
       jsonb_build_object('lane', lane.lane, 'published_seq', lane.published_seq, 'head_seq', lane.head_seq,
                          'since', oldest.created_at) AS facts,
       NULL::bigint AS amount, NULL::text AS currency
FROM onceflow.lane
JOIN onceflow.outcome AS oldest ON oldest.lane = lane.lane AND oldest.seq = lane.published_seq + 1
WHERE lane.head_seq > lane.published_seq
  AND oldest.created_at < clock_timestamp() - %(unpublished_minutes)s * interval '1 minute'
ORDER BY lane.lane
LIMIT %(rows_max)s;

-- name: lane_stopped
SELECT 'lane ' || lane AS subject, NULL::text AS account, NULL::text AS mode,
       jsonb_build_object('lane', lane, 'state', state, 'detail', detail, 'head_seq', head_seq, 'published_seq', published_seq)
           AS facts,
       NULL::bigint AS amount, NULL::text AS currency
FROM onceflow.lane
WHERE state <> 'ok'
ORDER BY lane
LIMIT %(rows_max)s;

-- name: partition_stopped
SELECT 'partition ' || topic || '/' || partition AS subject, NULL::text AS account, NULL::text AS mode,
       jsonb_build_object('topic', topic, 'partition', partition, 'code', stopped, 'next_offset', next_offset,
                          'since', updated_at) AS facts,
       NULL::bigint AS amount, NULL::text AS currency
FROM onceflow.progress
WHERE stopped IS NOT NULL
ORDER BY topic, partition
LIMIT %(rows_max)s;

-- name: outcome_contradiction
-- Outcomes that the topic had when the database was put back, and that a handler gave otherwise afterwards.
SELECT 'outcome ' || outcome.outcome_id AS subject, NULL::text AS account, NULL::text AS mode,
       jsonb_build_object('outcome_id', outcome.outcome_id, 'revision', outcome.revision, 'lane', outcome.lane, 'seq', outcome.seq,
                          'type', outcome.type, 'cause', contradiction.cause, 'since', contradiction.noticed_at) AS facts,
       NULL::bigint AS amount, NULL::text AS currency
FROM onceflow.outcome_contradiction AS contradiction
JOIN onceflow.outcome USING (lane, seq)
ORDER BY contradiction.noticed_at
LIMIT %(rows_max)s;
