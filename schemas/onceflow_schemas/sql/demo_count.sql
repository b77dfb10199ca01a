-- The demo's independent count: what stands in the tables, read as an outsider would, with nothing but SELECT.

-- name: unfinished
-- One row per reason why the system is not at rest yet: the log's ends are compared by the caller, the rest is here.
-- Reads committed rows only; small tables, no index needed.
SELECT 'lane ' || lane || ' has published ' || published_seq || ' of ' || head_seq || ', state ' || state AS reason
FROM onceflow.lane
WHERE published_seq <> head_seq OR state <> 'ok'
UNION ALL
SELECT 'partition ' || partition || ' is stopped: ' || stopped
FROM onceflow.progress
WHERE stopped IS NOT NULL
UNION ALL
SELECT 'operation ' || id || ' is ' || state
FROM onceflow.operation
WHERE state NOT IN ('succeeded', 'failed', 'canceled')
UNION ALL
SELECT count(*) || ' outcomes of the application are not in their lanes' FROM onceflow.outcome_staged HAVING count(*) > 0
UNION ALL
SELECT count(*) || ' events are parked' FROM onceflow.parked HAVING count(*) > 0;

-- name: progress
-- How far each partition of a topic is done.
SELECT partition, next_offset FROM onceflow.progress WHERE topic = %(topic)s;

-- name: markers
-- The one state of each event that was taken in.
SELECT account, mode, event_id, state FROM onceflow.inbox;

-- name: states
-- The states of some events; their ids are the demo's own, so that one account and mode are enough.
SELECT event_id, state FROM onceflow.inbox WHERE event_id = ANY(%(event_ids)s);

-- name: quarantined
-- Records that wait for a person; an event without a usable identity is counted by its bytes.  What was tried again is no more in it.
SELECT coalesce(event_id, 'sha256:' || encode(sha256(value), 'hex')) AS event_id, code, sha256(value) AS digest
FROM onceflow.quarantine
WHERE decision IS DISTINCT FROM 'retried';

-- name: outcomes
-- Every outcome with the cause that it has, in the order in which its lane hands it out (primary key).
SELECT lane, seq, ce_id::text, type, key, cause, sha256(value) AS digest
FROM onceflow.outcome
ORDER BY lane, seq;

-- name: operations
-- Every operation with its end, and whether it was ever unknown: an attempt without an answer, or with one that proves nothing.
SELECT id::text, effect, subject, state, EXISTS (
    SELECT FROM onceflow.attempt
    WHERE operation_id = operation.id AND (evidence IS NULL OR evidence IN ('unknown', 'busy', 'lease_expired'))) AS unknown
FROM onceflow.operation
ORDER BY seq;

-- name: shop_table
-- The application of the demo has a table of its own, outside our schema.
CREATE TABLE IF NOT EXISTS public.demo_order (id text PRIMARY KEY, amount bigint NOT NULL, currency text NOT NULL);

-- name: shop_order
-- An application that did not hear the end of its transaction confirms the same order again.
INSERT INTO public.demo_order (id, amount, currency) VALUES (%(id)s, %(amount)s, %(currency)s) ON CONFLICT DO NOTHING;
