-- The rows of table lane: made once, for one outcome topic, and never changed in number afterwards.

-- name: lock_limit
SET LOCAL lock_timeout = '5s';

-- name: lanes_locked
-- Two appliers at once, or one beside a running processor: the table stands still while it is looked at and filled.
LOCK TABLE onceflow.lane IN SHARE ROW EXCLUSIVE MODE;

-- name: lanes
SELECT lane, topic_id FROM onceflow.lane ORDER BY lane;

-- name: make_lanes
-- One lane per partition of the outcome topic, numbered as the partitions are.
INSERT INTO onceflow.lane (lane, topic_id)
SELECT number, %(topic_id)s
FROM generate_series(0, %(count)s::integer - 1) AS number;
