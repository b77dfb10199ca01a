-- The proof: positions and rows against the two ends of the logs.  In the transaction of ``verify.sql``.

-- name: judge_positions
-- Positions against logs.  What was gone from a log's start is held against the position of now, which only grows; its end, which was
-- looked at last, against the position from before.  A partition without a row is read from its start where its topic is known.
INSERT INTO unexplained
SELECT 'range_lost', format('%%s/%%s of %%s', p.topic, p.partition, p.topic_id),
       format('the log begins behind offset %%s, which is to be read next', coalesce(here.next_offset, 0))
FROM passed AS p LEFT JOIN onceflow.progress AS here USING (topic_id, partition)
WHERE p.low > coalesce(here.next_offset, 0)
  AND EXISTS (SELECT FROM onceflow.progress AS begun WHERE begun.topic_id = p.topic_id)
UNION ALL
SELECT 'position_beyond_topic', format('%%s/%%s of %%s', topic, partition, topic_id),
       format('everything before offset %%s was read, and the log ends before', next_offset)
FROM passed WHERE next_offset > end_after
UNION ALL
-- As the reconciler tells it: a former topic counts until each of its partitions was begun in the new one.
SELECT 'topic_replaced', format('topic %%s', former.topic),
       format('the positions belong to another topic of this name, whose partitions %%s were not begun here',
              string_agg(DISTINCT former.partition::text, ', '))
FROM onceflow.progress AS former
WHERE former.next_offset > 0 AND EXISTS (SELECT FROM passed WHERE passed.topic = former.topic)
  AND NOT EXISTS (SELECT FROM passed JOIN onceflow.progress AS begun USING (topic_id, partition)
                  WHERE passed.topic = former.topic AND begun.partition = former.partition)
GROUP BY former.topic
UNION ALL
SELECT 'topic_not_asked', format('topic %%s', topic), 'positions of it are kept, and the settings do not name it as an input'
FROM onceflow.progress
WHERE next_offset > 0 AND NOT EXISTS (SELECT FROM passed WHERE passed.topic = progress.topic)
GROUP BY topic;

-- name: judge_trimmed
-- Records that are gone from the start of a log, and are younger than its topic keeps records: somebody has deleted them.
INSERT INTO unexplained
SELECT 'records_deleted', format('%%s/%%s of %%s', p.topic, p.partition, p.topic_id),
       format('records up to offset %%s are gone from its start before their time', max(m."offset"))
FROM marker AS m JOIN passed AS p USING (topic_id, partition)
WHERE m."offset" < p.low AND m.received_at >= p.kept_since
GROUP BY p.topic, p.partition, p.topic_id
UNION ALL
SELECT 'records_deleted', format('lane %%s', r.lane), format('outcomes up to sequence %%s are gone from its start before their time', max(r.seq))
FROM onceflow.outcome AS r JOIN lane_before AS b USING (lane)
WHERE b.low > 0 AND r.seq <= b.published_seq AND r.seq < coalesce(b.first_seq, b.published_seq + 1)
  AND r.created_at >= greatest(b.kept_since, %(since)s) AND b.kept_since IS NOT NULL
  AND NOT EXISTS (SELECT FROM seen_outcome AS s WHERE s.why IS NULL AND (s.lane, s.seq) = (r.lane, r.seq))
GROUP BY r.lane;
