-- The proof: positions and rows against the two ends of the logs, and what rows say of each other.  In the transaction of ``verify.sql``.

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

-- name: judge_states
-- Whether an event is done or ignored is said by its type and the set of handlers; the fewer are told, and those that are ignored
-- where they are as many.  What is ignored has no outcome.  A parked event waits with the bytes of its record.
INSERT INTO unexplained
WITH done AS (
    SELECT handler_set, type, count(*) FILTER (WHERE state = 'processed') AS processed, count(*) FILTER (WHERE state = 'ignored') AS ignored
    FROM onceflow.inbox
    WHERE NOT %(by_arrival)s::boolean AND coalesce(event_created, received_at) >= %(since)s AND coalesce(event_created, received_at) < %(until)s
       OR %(by_arrival)s::boolean AND processed_at >= %(since)s
    GROUP BY handler_set, type
)
SELECT 'state_differs', format('%%s/%%s', m.account, m.event_id),
       format('the marker says %%s, and other events of type %%s were not, by the same handlers', m.state, m.type)
FROM done JOIN onceflow.inbox AS m USING (handler_set, type)
WHERE done.processed > 0 AND done.ignored > 0
  AND m.state = CASE WHEN done.processed < done.ignored THEN 'processed' ELSE 'ignored' END
  AND (%(account)s::text IS NULL OR m.account = %(account)s)
UNION ALL
SELECT DISTINCT 'state_differs', format('%%s/%%s', m.account, m.event_id), 'the marker says ignored, and outcomes name the event as their cause'
FROM onceflow.outcome AS r JOIN onceflow.inbox AS m ON r.cause = format('event:%%s/%%s/%%s', m.account, m.mode, m.event_id)
WHERE m.state = 'ignored' AND r.created_at >= %(since)s AND (%(account)s::text IS NULL OR m.account = %(account)s)
UNION ALL
SELECT 'parked_differs', format('%%s/%%s', w.account, w.event_id), 'the bytes that wait are not those of the record'
FROM onceflow.parked AS w JOIN onceflow.inbox AS m USING (account, mode, event_id)
LEFT JOIN seen_event AS s ON (s.topic_id, s.partition, s."offset") = (w.topic_id, w.partition, w."offset")
WHERE (octet_length(m.body_sha256) = 32 AND sha256(coalesce(w.value, '')) <> m.body_sha256
       OR sha256(coalesce(w.value, '')) <> coalesce(s.value_digest, s.digest))
  AND (%(account)s::text IS NULL OR w.account = %(account)s);

-- name: judge_retention
-- Nothing is deleted by age that is younger than 32 days: a later time would explain the loss of whatever is missing.
INSERT INTO unexplained
SELECT 'retention_differs', name, format('rows of %%s before %%s are said to be gone by age, which is less than 32 days ago', name, gone_before)
FROM onceflow.retention WHERE gone_before > now() - interval '31 days 23 hours';

-- name: judge_stops
-- What stands still waits for a person: the subject is that of the reconciler's finding, which may be accepted.
INSERT INTO unexplained
SELECT 'partition_stopped', format('partition %%s/%%s', topic, partition), format('it stands still: %%s', stopped)
FROM onceflow.progress WHERE stopped IS NOT NULL
UNION ALL
SELECT 'lane_stopped', format('lane %%s', lane), format('it stands still: %%s', state) FROM onceflow.lane WHERE state LIKE 'stopped:%%';

-- name: fingerprints
SELECT topic_id, partition, next_offset, fingerprint FROM onceflow.progress WHERE fingerprint IS NOT NULL AND next_offset > 0;

-- name: served
SELECT id, mode, accounts FROM onceflow.deployment;

-- name: has_markers
SELECT EXISTS (SELECT FROM onceflow.inbox);
