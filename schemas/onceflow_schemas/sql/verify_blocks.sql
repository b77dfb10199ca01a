-- The proof: rows folded to one digest per block of places, beside the transaction of ``verify.sql``.

-- name: begin_blocks
-- A time is written as text: in one form only.
SELECT set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true), set_config('statement_timeout', '0', true);

-- name: event_blocks
-- The markers of a topic as blocks; lines as ``event_words`` writes them.  What is quarantined is never equal to a record: it has
-- another table to be compared with.
SELECT partition, block, records, digest, processed, ignored, parked
FROM (SELECT i.partition, i."offset" / %(places)s AS block, count(*) AS records,
             sha256(convert_to(string_agg(
                 CASE WHEN i.state = 'quarantined' THEN '!' ELSE '' END || i.account || E'\n' || i.mode || E'\n' || i.event_id
                     || E'\ncom.stripe.' || i.type || E'\n' || coalesce(i.event_created::text, '')
                     || E'\n' || i."offset"::text || E'\n' || encode(i.body_sha256, 'hex') || E'\n',
                 '' ORDER BY i."offset"), 'UTF8')) AS digest,
             count(*) FILTER (WHERE i.state = 'processed') AS processed, count(*) FILTER (WHERE i.state = 'ignored') AS ignored,
             count(*) FILTER (WHERE i.state = 'parked') AS parked
      FROM onceflow.inbox AS i
      JOIN unnest(%(partitions)s::integer[], %(firsts)s::bigint[], %(highs)s::bigint[]) AS asked (partition, first, high)
        ON asked.partition = i.partition AND i."offset" >= asked.first AND i."offset" < asked.high
      WHERE i.topic_id = %(topic_id)s
      GROUP BY 1, 2) AS folded
WHERE NOT EXISTS (SELECT FROM onceflow.quarantine AS q
                  WHERE q.topic_id = %(topic_id)s AND q.partition = folded.partition AND q."offset" / %(places)s = folded.block);

-- name: outcome_blocks
-- The outcomes as blocks; lines as ``outcome_words`` writes them.  What goes out in another form is never equal to a record.
-- One block after the other by the primary key: taken all at once they would be sorted, with their values.
WITH RECURSIVE found AS (
    SELECT lane, (SELECT min(r.seq) / %(places)s FROM onceflow.outcome AS r WHERE r.lane = lane.lane) AS block FROM onceflow.lane
    UNION ALL
    SELECT lane, (SELECT min(r.seq) / %(places)s FROM onceflow.outcome AS r WHERE r.lane = found.lane AND r.seq >= (block + 1) * %(places)s)
    FROM found WHERE block IS NOT NULL
)
SELECT found.lane, found.block, folded.records, folded.digest
FROM found CROSS JOIN LATERAL (
    SELECT count(*) AS records, sha256(convert_to(string_agg(concat_ws(
               E'\n', CASE WHEN withheld IS NOT NULL THEN '!' WHEN headers::text = '{}' THEN '' ELSE headers::text || E'\n' END || seq,
               ce_id, outcome_id, revision, type, key, cause, created_at, encode(sha256(value), 'hex'), ''), '' ORDER BY seq), 'UTF8')) AS digest
    FROM onceflow.outcome AS r
    WHERE r.lane = found.lane AND r.seq >= found.block * %(places)s AND r.seq < (found.block + 1) * %(places)s
) AS folded
WHERE found.block IS NOT NULL;
