-- What operators see and decide about positions and lanes.  Isolation: READ COMMITTED.  A decision and its row in audit
-- are one transaction, and the row that is decided about is locked first.

-- name: limits
-- A decision waits this long for whoever holds the row, and then says so.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true);

-- name: positions
SELECT cluster_id, topic_id, topic, partition, next_offset, fingerprint, epoch, owner, clean, stopped, waiting, updated_at
FROM onceflow.progress
ORDER BY topic, partition, updated_at DESC;

-- name: position
-- By primary key.
SELECT next_offset, fingerprint, epoch, owner, stopped, waiting
FROM onceflow.progress
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s;

-- name: position_locked
-- Waits for the batch that holds the row, so that its end is known before the position is set.
SELECT next_offset, fingerprint, epoch, owner, stopped, waiting
FROM onceflow.progress
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s
FOR UPDATE;

-- name: former_positions
-- Positions of the same partition in other topics of this name: older ones, or those of another cluster.
SELECT cluster_id, topic_id, next_offset FROM onceflow.progress
WHERE topic = %(topic)s AND partition = %(partition)s AND (cluster_id, topic_id) <> (%(cluster_id)s, %(topic_id)s)
ORDER BY updated_at DESC;

-- name: set_position
-- The epoch fences whoever reads the partition now; it takes the partition over anew.
UPDATE onceflow.progress
SET next_offset = %(next_offset)s, fingerprint = %(fingerprint)s, epoch = epoch + 1, owner = %(owner)s, clean = true,
    batch_end = %(next_offset)s, unclean_ends = 0, stopped = NULL, waiting = NULL, updated_at = clock_timestamp()
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s
RETURNING epoch;

-- name: begin_position
-- A topic that took the place of another one is read only after a person said from where.
INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, fingerprint, epoch, owner, clean,
                               batch_end)
VALUES (%(cluster_id)s, %(topic_id)s, %(partition)s, %(topic)s, %(next_offset)s, %(fingerprint)s, 1, %(owner)s, true,
        %(next_offset)s)
ON CONFLICT DO NOTHING
RETURNING epoch;

-- name: records_with_state
-- How many of these records have reached a state: a marker under their identity, or their bytes in quarantine.
-- Index: primary keys of inbox and quarantine.
SELECT count(*) FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(offsets)s::bigint[])
     AS asked (account, mode, event_id, "offset")
WHERE EXISTS (SELECT FROM onceflow.inbox
              WHERE inbox.account = asked.account AND inbox.mode = asked.mode AND inbox.event_id = asked.event_id)
   OR EXISTS (SELECT FROM onceflow.quarantine
              WHERE quarantine.topic_id = %(topic_id)s AND quarantine.partition = %(partition)s
                AND quarantine."offset" = asked."offset");

-- name: rows_kept
-- How many outcomes of a stretch of a lane are still in the table.  Index: primary key of outcome.
SELECT count(*) FROM onceflow.outcome WHERE lane = %(lane)s AND seq > %(after_seq)s AND seq <= %(last_seq)s;

-- name: resume_lane
-- Only from what the decision was made on, and under the lease that was held meanwhile.
WITH held AS MATERIALIZED (
    SELECT token FROM onceflow.lease WHERE name = %(name)s AND token = %(token)s FOR SHARE
), fence AS MATERIALIZED (
    SELECT onceflow.ensure(EXISTS (SELECT FROM held), 'OF005', 'another relay holds the lease') AS ok
)
UPDATE onceflow.lane
SET published_seq = %(published)s, topic_id = %(topic_id)s, state = %(state)s, detail = %(detail)s
WHERE lane = %(lane)s AND state = %(from_state)s AND published_seq = %(from_published)s AND topic_id = %(from_topic_id)s
  AND head_seq >= %(published)s AND (SELECT ok FROM fence);

-- name: audit
INSERT INTO onceflow.audit (who, action, subject, before, after, reason)
VALUES (%(who)s, %(action)s, %(subject)s, %(before)s, %(after)s, %(reason)s);
