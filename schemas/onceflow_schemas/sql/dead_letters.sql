-- Quarantined records to the dead-letter topic.  Isolation: READ COMMITTED.

-- name: turn
-- One publisher at a time, as long as its transaction lives; rows stay unlocked while Kafka is asked.
SELECT pg_try_advisory_xact_lock(1869505381, 1684365668) AS mine;

-- name: page
-- The oldest first, as many as their bytes allow, at least one.  What was retried has left quarantine.
-- Index: quarantine_not_dead_lettered.
SELECT topic_id, partition, "offset", topic, code, detail, handler, traceback, key, value, headers::text AS headers
FROM (
    SELECT waits.*, sum(coalesce(octet_length(value), 0)) OVER (ORDER BY quarantined_at, topic_id, partition, "offset")
                    - coalesce(octet_length(value), 0) AS bytes_before
    FROM (
        SELECT * FROM onceflow.quarantine
        WHERE dead_lettered_at IS NULL AND decision IS DISTINCT FROM 'retried'
        ORDER BY quarantined_at, topic_id, partition, "offset"
        LIMIT %(count)s
    ) AS waits
) AS page
WHERE bytes_before < %(bytes_max)s
ORDER BY quarantined_at, topic_id, partition, "offset";

-- name: mark
-- With a code: the topic does not take it.
UPDATE onceflow.quarantine SET dead_lettered_at = clock_timestamp(), dead_letter_code = meant.code
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(codes)s::text[])
     AS meant (topic_id, partition, "offset", code)
WHERE quarantine.topic_id = meant.topic_id AND quarantine.partition = meant.partition
  AND quarantine."offset" = meant."offset" AND quarantine.dead_lettered_at IS NULL;
