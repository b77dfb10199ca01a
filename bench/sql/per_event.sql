-- One transaction per event, written by hand, on the same tables as the batch transaction.

-- name: begin_partition
INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean, batch_end)
VALUES (%(cluster_id)s, %(topic_id)s, %(partition)s, %(topic)s, 0, 1, 'per event', false, 0)
ON CONFLICT DO NOTHING;

-- name: marker
INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, api_version, topic_id, partition,
                            "offset", body_sha256, event_created, received_at, handler_set)
VALUES (%s, %s, %s, 'processed', %s, %s, %s, %s, %s, %s, %s, %s, %s, 'per event')
ON CONFLICT DO NOTHING;

-- name: outcome
WITH head AS (
    UPDATE onceflow.lane SET head_seq = head_seq + 1 WHERE lane = %s RETURNING lane, head_seq
)
INSERT INTO onceflow.outcome (lane, seq, outcome_id, revision, ce_id, type, key, value, cause)
SELECT lane, head_seq, %s, 1, %s, %s, %s, %s, %s FROM head;

-- name: progress
UPDATE onceflow.progress SET next_offset = %s
WHERE cluster_id = %s AND topic_id = %s AND partition = %s;
