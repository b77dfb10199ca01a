-- Positions of partitions: take-over, release, stops.  Isolation: READ COMMITTED, each its own transaction.

-- name: other_topic
-- Rows of a topic of the same name that is not this one: the topic was re-created, or another cluster has its name.
SELECT cluster_id, topic_id FROM onceflow.progress
WHERE topic = %(topic)s AND partition = %(partition)s AND (cluster_id, topic_id) <> (%(cluster_id)s, %(topic_id)s)
LIMIT 1;

-- name: topic_is_known
-- A partition that appears in a topic which is already being read was added later, so nothing in it may be skipped.
SELECT EXISTS (SELECT FROM onceflow.progress WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s) AS known;

-- name: take_over
-- Raises the epoch and reads the position in one statement; it waits for a transaction of the former owner that holds
-- the row, so an unanswered COMMIT is decided before this returns.
UPDATE onceflow.progress
SET epoch = epoch + 1, owner = %(owner)s, clean = false, waiting = NULL, updated_at = clock_timestamp(),
    unclean_ends = CASE WHEN clean THEN 0 ELSE unclean_ends + 1 END
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s
RETURNING next_offset, fingerprint, epoch, stopped, unclean_ends,
          EXISTS (SELECT FROM onceflow.suspect
                  WHERE suspect.topic_id = progress.topic_id AND suspect.partition = progress.partition
                    AND suspect."offset" >= progress.next_offset);

-- name: begin_partition
-- The first position of a partition.  Two processes may try; the loser's insert does nothing and it takes over.
INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean, batch_end)
VALUES (%(cluster_id)s, %(topic_id)s, %(partition)s, %(topic)s, %(next_offset)s, 0, %(owner)s, true, %(next_offset)s)
ON CONFLICT DO NOTHING;

-- name: stop
-- A person must look: the code is shown until the position is set anew.
UPDATE onceflow.progress SET stopped = %(code)s, updated_at = clock_timestamp()
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s AND epoch = %(epoch)s;

-- name: wait
-- Why a partition waits, while it is still ours.
UPDATE onceflow.progress SET waiting = %(reason)s, updated_at = clock_timestamp()
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s AND epoch = %(epoch)s;

-- name: count_try
-- In its own commit before the try, so that it survives the process that the record kills.
INSERT INTO onceflow.suspect (topic_id, partition, "offset", tries)
VALUES (%(topic_id)s, %(partition)s, %(offset)s, 1)
ON CONFLICT (topic_id, partition, "offset") DO UPDATE SET tries = suspect.tries + 1
RETURNING tries;

-- name: take_try_back
-- The process lives and the database only refused to write: the record did nothing.
UPDATE onceflow.suspect SET tries = tries - 1
WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s AND tries > 1;

-- name: clear_suspect
DELETE FROM onceflow.suspect
WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s;

-- name: release
-- A clean end: the next owner needs no care.  Rows with a newer epoch are somebody else's.
UPDATE onceflow.progress SET clean = true, updated_at = clock_timestamp()
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(epochs)s::bigint[])
     AS held (topic_id, partition, epoch)
WHERE progress.cluster_id = %(cluster_id)s AND progress.topic_id = held.topic_id
  AND progress.partition = held.partition AND progress.epoch = held.epoch;

-- name: still_held
-- Which of these positions are still ours after the fence failed.
SELECT progress.topic_id, progress.partition
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(epochs)s::bigint[], %(next_offsets)s::bigint[])
     AS held (topic_id, partition, epoch, next_offset)
JOIN onceflow.progress USING (topic_id, partition)
WHERE progress.cluster_id = %(cluster_id)s AND progress.epoch = held.epoch AND progress.next_offset = held.next_offset;

-- name: decided
-- Which of these partitions may go on again: their row is there and has no stop, so a person has decided.
SELECT progress.topic_id, progress.partition
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[]) AS asked (topic_id, partition)
JOIN onceflow.progress USING (topic_id, partition)
WHERE progress.cluster_id = %(cluster_id)s AND progress.stopped IS NULL;
