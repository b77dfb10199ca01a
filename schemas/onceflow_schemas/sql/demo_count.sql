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
WHERE stopped IS NOT NULL;

-- name: progress
-- How far each partition of a topic is done.
SELECT partition, next_offset FROM onceflow.progress WHERE topic = %(topic)s;

-- name: markers
-- The one state of each event that was taken in.
SELECT account, mode, event_id, state FROM onceflow.inbox;

-- name: quarantined
-- Records that wait for a person; an event without a usable identity is counted by its bytes.
SELECT coalesce(event_id, 'sha256:' || encode(sha256(value), 'hex')) AS event_id, code, sha256(value) AS digest
FROM onceflow.quarantine;

-- name: outcomes
-- Every outcome with the cause that it has, in the order in which its lane hands it out (primary key).
SELECT lane, seq, ce_id::text, type, key, cause, sha256(value) AS digest
FROM onceflow.outcome
ORDER BY lane, seq;
