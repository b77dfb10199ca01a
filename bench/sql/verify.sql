-- A road on which everything was done: the rows that the processor would have written, in few statements.

-- name: copy_markers
COPY onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition, "offset", body_sha256,
                     event_created, received_at, handler_set) FROM STDIN;

-- name: outcomes
-- One of each event, as the plain handler of the bench asks for it; those of a key in one lane, in the order of the log.
INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause)
SELECT lane, row_number() OVER (PARTITION BY lane ORDER BY partition, "offset"), id, id, 'bench.seen', object_id,
       convert_to(json_build_object('amount', "offset", 'currency', 'usd', 'customer', object_id, 'event', event_id,
                                    'object', split_part(type, '.', 1))::text, 'UTF8'),
       format('event:%%s/%%s/%%s', account, mode, event_id)
FROM (SELECT *, (hashtext(object_id) & 2147483647) %% %(lanes)s AS lane, gen_random_uuid() AS id FROM onceflow.inbox) AS marked;

-- name: heads
UPDATE onceflow.lane SET head_seq = (SELECT count(*) FROM onceflow.outcome WHERE outcome.lane = lane.lane);

-- name: settled
VACUUM ANALYZE onceflow.inbox, onceflow.outcome;
