-- The proof: topics are copied into temporary tables and compared with the ledger's rows.  One transaction at READ COMMITTED:
-- positions and lanes are read before the topics, rows after them, so that work which goes on meanwhile is no difference.
-- No locks are taken; what is large is sorted and joined by PostgreSQL, on disk where it must be.
-- Blocks of rows are folded beside it, in a connection of their own: a block whose records and rows are equal is explained as a whole.

-- name: begin
SELECT set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true);

-- name: unprove_originals
-- Blocks that hold the marker of an event of which another record was copied, or an event that waits and whose bytes only its record
-- tells, since the marker has a digest of what they say.  Index: primary key of inbox.
DELETE FROM proved_event AS p
USING (SELECT DISTINCT i.topic_id, i.partition, i."offset" / %(places)s AS block
       FROM seen_event AS s JOIN onceflow.inbox AS i USING (account, mode, event_id)
       WHERE (i.topic_id, i.partition, i."offset") <> (s.topic_id, s.partition, s."offset")
       UNION
       SELECT w.topic_id, w.partition, w."offset" / %(places)s FROM onceflow.parked AS w JOIN onceflow.inbox AS i USING (account, mode, event_id)
       WHERE octet_length(i.body_sha256) <> 32) AS original
WHERE (p.topic_id, p.partition, p.block) = (original.topic_id, original.partition, original.block)
RETURNING p.topic_id, p.partition, p.block;

-- name: add_unexplained
INSERT INTO unexplained VALUES (%(kind)s, %(subject)s, %(detail)s);

-- name: positions
SELECT topic_id, partition, next_offset FROM onceflow.progress;

-- name: lanes
SELECT lane, head_seq, published_seq, topic_id FROM onceflow.lane ORDER BY lane;

-- name: first_offsets
-- The first record of the window by the ledger: a time is only a hint where to begin.  What was done lately of what came long ago is
-- no reason to read so far back.  Indexes: inbox_times, inbox_processed.
SELECT topic_id, partition, min("offset") FROM onceflow.inbox
WHERE NOT %(by_arrival)s::boolean AND coalesce(event_created, received_at) >= %(since)s
   OR %(by_arrival)s::boolean AND processed_at >= %(since)s AND received_at >= %(since)s::timestamptz - interval '3 days'
GROUP BY topic_id, partition;

-- name: first_sequences
SELECT lane, min(seq) FROM onceflow.outcome WHERE created_at >= %(since)s GROUP BY lane;

-- name: analyze
ANALYZE seen_event, seen_outcome, proved_event, proved_outcome;

-- name: make_marker
-- The markers of the window that no block has proved.  Indexes: inbox_times, inbox_processed.
CREATE TEMPORARY TABLE marker ON COMMIT DROP AS
SELECT account, mode, event_id, topic_id, partition, "offset", received_at
FROM onceflow.inbox
WHERE (NOT %(by_arrival)s::boolean AND coalesce(event_created, received_at) >= %(since)s AND coalesce(event_created, received_at) < %(until)s
       OR %(by_arrival)s::boolean AND processed_at >= %(since)s)
  AND (%(account)s::text IS NULL OR account = %(account)s)
  AND NOT EXISTS (SELECT FROM proved_event AS p
                  WHERE (p.topic_id, p.partition, p.block) = (inbox.topic_id, inbox.partition, inbox."offset" / %(places)s)
                    AND inbox."offset" >= p.since AND inbox."offset" < p.until);

-- name: make_judged
-- What each record of the window is.  The marker at its position says it; else a quarantined record does; else the position; else
-- the marker of the same event at another position, which makes it a duplicate.
CREATE TEMPORARY TABLE judged ON COMMIT DROP AS
SELECT s.topic_id, s.partition, s."offset", s.account, s.mode, s.event_id, s.created, s.received_at, s.digest,
       CASE WHEN here.event_id IS NOT NULL THEN here.state
            WHEN q."offset" IS NOT NULL THEN 'quarantined'
            WHEN s."offset" >= p.next_offset THEN CASE WHEN s.trusted THEN 'not_yet_due' ELSE 'foreign' END
            WHEN other.event_id IS NOT NULL THEN 'duplicate'
            WHEN to_timestamp(s.record_ms / 1000.0) < gone.markers THEN 'forgotten'
            WHEN to_timestamp(s.record_ms / 1000.0) < gone.records THEN CASE WHEN s.event_id IS NULL THEN 'forgotten' ELSE 'undecided' END
            ELSE 'without_state' END AS state,
       to_timestamp(s.record_ms / 1000.0) < gone.records AS may_be_decided, other.body_sha256 AS first_digest,
       other.api_version AS first_api_version,
       here.event_id IS NOT NULL
           AND ((here.account, here.mode, here.event_id) IS DISTINCT FROM (s.account, s.mode, s.event_id)
                OR here.body_sha256 <> s.digest OR here.type <> s.type
                OR here.event_created IS DISTINCT FROM s.created) AS marker_differs,
       q."offset" IS NOT NULL AND sha256(coalesce(q.value, '')) <> coalesce(s.value_digest, s.digest) AS quarantine_differs,
       here.state = 'quarantined' AND q."offset" IS NULL
           AND to_timestamp(s.record_ms / 1000.0) >= gone.records AS quarantine_lacks,
       -- A kept record has a type where it was admitted, and what was admitted has a marker; whether it still would be is asked of the record.
       q.type IS NOT NULL AND s.event_id IS NOT NULL AND other.event_id IS NULL
           AND to_timestamp(s.record_ms / 1000.0) >= gone.markers AS marker_lacks,
       q."offset" IS NOT NULL AND q.decision IS NULL AND here.state IN ('processed', 'ignored') AS is_kept_and_done
FROM seen_event AS s
JOIN passed AS p USING (topic_id, partition)
LEFT JOIN onceflow.inbox AS here
       ON (here.account, here.mode, here.event_id) = (s.account, s.mode, s.event_id)
      AND (here.topic_id, here.partition, here."offset") = (s.topic_id, s.partition, s."offset")
LEFT JOIN onceflow.inbox AS other ON (other.account, other.mode, other.event_id) = (s.account, s.mode, s.event_id)
LEFT JOIN onceflow.quarantine AS q
       ON (q.topic_id, q.partition, q."offset") = (s.topic_id, s.partition, s."offset")
CROSS JOIN (SELECT coalesce(max(gone_before) FILTER (WHERE name = 'inbox'), '-infinity') AS markers,
                   coalesce(max(gone_before) FILTER (WHERE name = 'quarantine'), '-infinity') AS records FROM onceflow.retention) AS gone
-- By arrival, everything that was read is judged: what waited for long came before.
WHERE (%(by_arrival)s::boolean OR coalesce(s.created, to_timestamp(s.record_ms / 1000.0)) >= %(since)s
                              AND coalesce(s.created, to_timestamp(s.record_ms / 1000.0)) < %(until)s
       -- What a marker says to be of the window, its record must say too.
       OR here.event_created >= %(since)s AND here.event_created < %(until)s)
  AND (%(account)s::text IS NULL OR s.account = %(account)s);

-- name: repeats
-- What is taken for a repeat of an event, what may have been kept in quarantine until its time was over, and what is kept without a
-- marker: only whoever reads the record can say what it is.
SELECT topic_id, partition, "offset", first_digest, first_api_version FROM judged
WHERE (state = 'duplicate' AND NOT may_be_decided OR state = 'undecided' OR marker_lacks)
  AND (topic_id, partition, "offset") > (%(topic_id)s, %(partition)s, %(offset)s)
ORDER BY topic_id, partition, "offset" LIMIT %(rows_max)s;

-- name: settle_repeats
UPDATE judged SET state = CASE WHEN state = 'undecided' AND is_unlike THEN 'forgotten' ELSE 'without_state' END
FROM (SELECT j.ctid AS place, u.why IS NOT NULL AS is_unlike FROM judged AS j LEFT JOIN unlike AS u USING (topic_id, partition, "offset")
      WHERE j.state = 'undecided' OR j.state = 'duplicate' AND u.why IS NOT NULL) AS looked_at
WHERE judged.ctid = looked_at.place;

-- name: judge_records
INSERT INTO unexplained
SELECT 'record_without_state', format('%%s/%%s@%%s/%%s of %%s', account, event_id, partition, "offset", topic_id),
       format('partition %%s, offset %%s: %%s', partition, "offset",
              coalesce(why || ', and it is not kept in quarantine', 'progress has passed it, no marker and no quarantined record knows it'))
FROM judged LEFT JOIN unlike USING (topic_id, partition, "offset") WHERE state = 'without_state'
UNION ALL
SELECT 'foreign_record', format('%%s@%%s of %%s', partition, "offset", topic_id),
       format('partition %%s, offset %%s: a record that nobody vouches for waits', partition, "offset")
FROM judged WHERE state = 'foreign'
UNION ALL
SELECT 'marker_differs', format('%%s/%%s', account, event_id),
       format('partition %%s, offset %%s: the marker has another digest, type or time than the record', partition, "offset")
FROM judged WHERE marker_differs
UNION ALL
SELECT 'quarantine_differs', format('%%s@%%s of %%s', partition, "offset", topic_id),
       format('partition %%s, offset %%s: the quarantined bytes are not the record''s', partition, "offset")
FROM judged WHERE quarantine_differs
UNION ALL
SELECT 'quarantine_lacks', format('%%s/%%s', account, event_id),
       format('partition %%s, offset %%s: the marker says quarantined, the record is not kept', partition, "offset")
FROM judged WHERE quarantine_lacks
UNION ALL
SELECT 'quarantine_without_marker', format('%%s/%%s', account, event_id),
       format('partition %%s, offset %%s: the record is kept in quarantine, and no marker says so', partition, "offset")
FROM judged LEFT JOIN unlike USING (topic_id, partition, "offset") WHERE marker_lacks AND why IS NULL
UNION ALL
SELECT 'state_differs', format('%%s/%%s', account, event_id),
       format('partition %%s, offset %%s: the marker says %%s, and the record is kept in quarantine undecided', partition, "offset", state)
FROM judged WHERE is_kept_and_done
UNION ALL
SELECT 'record_doubled', format('%%s/%%s', account, event_id),
       format('the same receipt stands %%s times in the topic', count(*))
FROM judged WHERE received_at IS NOT NULL AND state <> 'foreign'
GROUP BY account, mode, event_id, received_at, digest HAVING count(*) > 1;

-- name: judge_markers
-- A marker without its record: the log has the place, or never had it.
INSERT INTO unexplained
SELECT 'marker_without_record', format('%%s/%%s', m.account, m.event_id),
       format('the marker names partition %%s, offset %%s, where no such record is', m.partition, m."offset")
FROM marker AS m JOIN passed AS p USING (topic_id, partition)
LEFT JOIN seen_event AS s ON (s.topic_id, s.partition, s."offset") = (m.topic_id, m.partition, m."offset")
WHERE m."offset" >= p.first AND m."offset" < p.high
  AND (s."offset" IS NULL OR (s.account, s.mode, s.event_id) IS DISTINCT FROM (m.account, m.mode, m.event_id))
UNION ALL
SELECT 'topic_lost_records', format('%%s/%%s', m.account, m.event_id),
       format('the marker names partition %%s, offset %%s, behind the end of the log', m.partition, m."offset")
FROM marker AS m JOIN passed AS p USING (topic_id, partition) WHERE m."offset" >= p.end_after
UNION ALL
-- A topic that was made anew has left its positions.
SELECT 'marker_without_record', format('%%s/%%s', m.account, m.event_id),
       format('the marker names partition %%s of topic %%s, which is none of the inputs and never was', m.partition, m.topic_id)
FROM marker AS m
WHERE NOT EXISTS (SELECT FROM passed AS p WHERE (p.topic_id, p.partition) = (m.topic_id, m.partition))
  AND NOT EXISTS (SELECT FROM onceflow.progress AS p WHERE (p.topic_id, p.partition) = (m.topic_id, m.partition))
UNION ALL
SELECT 'parked_lacks', format('%%s/%%s', m.account, m.event_id), 'the marker says parked, the event does not wait'
FROM onceflow.inbox AS m WHERE m.state = 'parked'
  AND (%(by_arrival)s::boolean AND m.processed_at >= %(since)s
       OR NOT %(by_arrival)s::boolean AND coalesce(m.event_created, m.received_at) >= %(since)s
          AND coalesce(m.event_created, m.received_at) < %(until)s)
  AND (%(account)s::text IS NULL OR m.account = %(account)s)
  AND NOT EXISTS (SELECT FROM onceflow.parked AS w WHERE (w.account, w.mode, w.event_id) = (m.account, m.mode, m.event_id))
UNION ALL
SELECT 'parked_without_marker', format('%%s/%%s', w.account, w.event_id), 'the event waits, and its marker does not say so'
FROM onceflow.parked AS w LEFT JOIN onceflow.inbox AS i USING (account, mode, event_id)
WHERE i.state IS DISTINCT FROM 'parked' AND (%(account)s::text IS NULL OR w.account = %(account)s);

-- name: judge_quarantine
INSERT INTO unexplained
SELECT 'quarantine_without_record', format('%%s@%%s of %%s', q.partition, q."offset", q.topic_id),
       format('a quarantined record of partition %%s, offset %%s, which the log has not', q.partition, q."offset")
FROM onceflow.quarantine AS q JOIN passed AS p USING (topic_id, partition)
LEFT JOIN seen_event AS s ON (s.topic_id, s.partition, s."offset") = (q.topic_id, q.partition, q."offset")
WHERE (q."offset" >= p.first AND q."offset" < p.high OR q."offset" >= p.end_after AND q.quarantined_at < now()) AND s."offset" IS NULL
  -- One of a proved block was kept after the block was folded: its record is there.
  AND NOT EXISTS (SELECT FROM proved_event AS b
                  WHERE (b.topic_id, b.partition, b.block) = (q.topic_id, q.partition, q."offset" / %(places)s)
                    AND q."offset" >= b.since AND q."offset" < b.until)
UNION ALL
SELECT 'quarantine_without_record', format('%%s@%%s of %%s', q.partition, q."offset", q.topic_id),
       'a quarantined record of a partition that is none of the inputs and never was'
FROM onceflow.quarantine AS q
WHERE NOT EXISTS (SELECT FROM passed AS p WHERE (p.topic_id, p.partition) = (q.topic_id, q.partition))
  AND NOT EXISTS (SELECT FROM onceflow.progress AS p WHERE (p.topic_id, p.partition) = (q.topic_id, q.partition));

-- name: make_known
-- Every event of the window that the ledgers know, once: a marker is alone of its event, unless something else names it too.
CREATE TEMPORARY TABLE known ON COMMIT DROP AS
WITH marked AS (
    SELECT account, event_id, event_created AS created, type FROM onceflow.inbox
    WHERE mode = %(mode)s AND coalesce(event_created, received_at) >= %(since)s AND coalesce(event_created, received_at) < %(until)s
      AND (%(account)s::text IS NULL OR account = %(account)s)
), beside AS MATERIALIZED (
    SELECT account, event_id, created FROM judged WHERE mode = %(mode)s AND state = 'not_yet_due'
    UNION ALL
    SELECT q.account, q.event_id, s.created FROM onceflow.quarantine AS q
    JOIN judged AS s USING (topic_id, partition, "offset") WHERE q.event_id IS NOT NULL AND q.mode = %(mode)s
)
SELECT account, event_id, created, type FROM marked
WHERE NOT EXISTS (SELECT FROM beside AS b WHERE (b.account, b.event_id) = (marked.account, marked.event_id))
UNION ALL
SELECT account, event_id, min(created), min(type) FROM (
    SELECT account, event_id, created, NULL AS type FROM beside
    UNION ALL
    SELECT account, event_id, created, type FROM marked
    WHERE EXISTS (SELECT FROM beside AS b WHERE (b.account, b.event_id) = (marked.account, marked.event_id))
) AS named_twice GROUP BY account, event_id;

-- name: hours
-- A count and a hash that does not depend on the order, by account and hour.
SELECT account, extract(epoch FROM date_trunc('hour', created, 'UTC'))::bigint AS hour, count(*) AS events,
       bit_xor(('x' || left(encode(sha256(convert_to(event_id, 'UTF8')), 'hex'), 16))::bit(64)::bigint) AS id_hash
FROM known WHERE created IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2;


-- name: judge_listed
-- An event that Stripe lists is known now, or is so young that it may be on its way.
INSERT INTO unexplained
SELECT 'missed_event', format('event %%s/%%s/%%s', l.account, %(mode)s::text, l.event_id), format('Stripe lists it (%%s, %%s), no ledger knows it', l.type, l.created)
FROM listed_event AS l
WHERE l.account = %(listed_account)s AND l.created < to_timestamp(%(settled)s)
  AND NOT EXISTS (SELECT FROM known AS k WHERE (k.account, k.event_id) = (l.account, l.event_id))
  AND NOT EXISTS (SELECT FROM onceflow.inbox AS i WHERE (i.account, i.mode, i.event_id) = (l.account, %(mode)s, l.event_id))
UNION ALL
SELECT 'event_differs', format('%%s/%%s', l.account, l.event_id),
       format('Stripe says %%s of %%s, the marker says %%s of %%s', l.type, l.created, k.type, k.created)
FROM listed_event AS l JOIN known AS k USING (account, event_id)
WHERE l.account = %(listed_account)s AND k.type IS NOT NULL AND (k.type, k.created) IS DISTINCT FROM (l.type, l.created)
UNION ALL
SELECT 'event_not_listed', format('%%s/%%s', k.account, k.event_id), 'the ledger has it, Stripe does not list it'
FROM known AS k JOIN listed_span AS span ON span.account = k.account AND k.created >= span.since AND k.created < span.until
WHERE k.account = %(listed_account)s
  AND k.created < to_timestamp(%(settled)s)
  AND NOT EXISTS (SELECT FROM listed_event AS l WHERE (l.account, l.event_id) = (k.account, k.event_id))
  -- What is kept for a person had no effect, and may be nothing that Stripe ever wrote.
  AND NOT EXISTS (SELECT FROM onceflow.quarantine AS q WHERE (q.account, q.mode, q.event_id) = (k.account, %(mode)s, k.event_id));

-- name: count_on_the_way
SELECT count(*) FROM listed_event AS l WHERE l.account = %(listed_account)s AND l.created >= to_timestamp(%(settled)s)
  AND NOT EXISTS (SELECT FROM known AS k WHERE (k.account, k.event_id) = (l.account, l.event_id));

-- name: count_events
-- Distinct events of the window, in whatever ledger they are.
SELECT (SELECT count(*) FROM known)
     + (SELECT count(*) FROM (SELECT account, event_id FROM listed_event EXCEPT SELECT account, event_id FROM known
                              WHERE EXISTS (SELECT FROM listed_event)) AS listed_only);

-- name: count_states
SELECT state, sum(records)::bigint FROM (
    SELECT state, count(*) AS records FROM judged GROUP BY state
    UNION ALL
    SELECT found.state, sum(found.records) FROM proved_event AS p
    CROSS JOIN LATERAL (VALUES ('processed', p.processed), ('ignored', p.ignored), ('parked', p.parked)) AS found (state, records)
    GROUP BY found.state
) AS counted GROUP BY state HAVING sum(records) > 0;

-- name: count_operations
SELECT state, count(*) FROM onceflow.operation
WHERE requested_at >= %(since)s AND requested_at < %(until)s AND (%(account)s::text IS NULL OR account = %(account)s) GROUP BY state;

-- name: judge_outcomes
-- Rows against records, from the first sequence that the log has; those behind what was published before the look may wait.
INSERT INTO unexplained
WITH began AS (
    SELECT b.lane, b.published_seq,
           CASE WHEN b.first = 0 OR (b.first = b.low AND b.low = 0) THEN 1 ELSE b.first_seq END AS seq
    FROM lane_before AS b
), gone AS (
    SELECT substring(name FROM 9)::integer AS lane, gone_before FROM onceflow.retention WHERE name LIKE 'outcome/%%'
)
SELECT 'outcome_foreign', format('%%s@%%s', lane, "offset"), format('lane %%s, offset %%s: %%s', lane, "offset", why)
FROM seen_outcome WHERE why IS NOT NULL
UNION ALL
SELECT 'outcome_doubled', format('%%s/%%s', lane, seq), format('sequence %%s stands %%s times in lane %%s', seq, count(*), lane)
FROM seen_outcome WHERE why IS NULL AND NOT refill GROUP BY lane, seq HAVING count(*) > 1
UNION ALL
SELECT 'outcome_not_published', format('%%s/%%s', r.lane, r.seq), format('outcome %%s is not in the topic', r.ce_id)
FROM onceflow.outcome AS r JOIN began AS b USING (lane)
WHERE r.seq >= b.seq AND r.seq <= b.published_seq
  AND NOT EXISTS (SELECT FROM proved_outcome AS p WHERE (p.lane, p.block) = (r.lane, r.seq / %(places)s))
  AND NOT EXISTS (SELECT FROM seen_outcome AS s WHERE s.why IS NULL AND (s.lane, s.seq) = (r.lane, r.seq))
UNION ALL
SELECT 'outcome_without_row', format('%%s/%%s', s.lane, s.seq), format('the topic has outcome %%s, the table has not', s.ce_id)
FROM seen_outcome AS s LEFT JOIN gone USING (lane)
WHERE s.why IS NULL AND s.created_at::timestamptz >= coalesce(gone.gone_before, '-infinity')
  AND NOT EXISTS (SELECT FROM onceflow.outcome AS r WHERE (r.lane, r.seq) = (s.lane, s.seq))
UNION ALL
SELECT 'outcome_differs', format('%%s/%%s', s.lane, s.seq), format('record %%s and row %%s differ', s.ce_id, r.ce_id)
FROM seen_outcome AS s JOIN onceflow.outcome AS r USING (lane, seq)
WHERE s.why IS NULL
  AND ((s.ce_id, s.outcome_id, s.revision, s.type, s.key, s.cause, s.withheld)
           IS DISTINCT FROM (r.ce_id::text, r.outcome_id::text, r.revision, r.type, r.key, r.cause, r.withheld)
       OR s.created_at::timestamptz <> r.created_at
       OR s.digest <> CASE WHEN r.withheld IS NULL THEN sha256(r.value) ELSE sha256('{}') END
       OR (r.withheld IS NULL AND CASE WHEN s.own_headers IS NULL THEN r.headers::text <> '{}'
                                       ELSE s.own_headers <> r.headers::jsonb END));

-- name: judge_lanes
INSERT INTO unexplained
SELECT 'lane_gap', format('%%s/%%s', lane, seq), format('lane %%s: sequence %%s follows %%s', lane, seq, before)
FROM (SELECT lane, seq, lag(seq) OVER (PARTITION BY lane ORDER BY "offset") AS before
      FROM seen_outcome WHERE why IS NULL AND NOT refill) AS steps
-- Between two that were copied there may be whole blocks, of this many sequences each, that were proved.  A hole that was refilled is
-- none: the records that fill it stand behind, and say so.
WHERE seq <= before
   OR seq - before - 1 <> %(places)s * (SELECT count(*) FROM proved_outcome AS p
                                        WHERE p.lane = steps.lane AND p.block * %(places)s > before AND p.block * %(places)s < seq)
                          + (SELECT count(DISTINCT filled.seq) FROM seen_outcome AS filled
                             WHERE filled.lane = steps.lane AND filled.why IS NULL AND filled.refill
                               AND filled.seq > steps.before AND filled.seq < steps.seq)
UNION ALL
SELECT 'lane_rows_missing', lane::text,
       format('lane %%s: %%s rows between sequence %%s and its head %%s', lane, rows, first_seq, head_seq)
FROM (SELECT l.lane, l.head_seq, r.rows, coalesce(r.first_seq, 1) AS first_seq, r.last_seq,
             g.gone_before > '-infinity' OR %(begins)s::boolean AS may_begin_late
      FROM onceflow.lane AS l
      -- A window is counted from its first outcome on; everything from the first sequence on.  Index: outcome_created.
      LEFT JOIN (SELECT lane, min(seq) AS seq FROM onceflow.outcome WHERE %(begins)s::boolean AND created_at >= %(since)s GROUP BY lane) AS w
             ON w.lane = l.lane
      CROSS JOIN LATERAL (SELECT count(*) AS rows, min(seq) AS first_seq, max(seq) AS last_seq FROM onceflow.outcome
                          WHERE lane = l.lane AND seq >= CASE WHEN %(begins)s::boolean THEN w.seq ELSE 1 END) AS r
      LEFT JOIN onceflow.retention AS g ON g.name = 'outcome/' || l.lane) AS counted
WHERE NOT (rows = 0 AND (head_seq = 0 OR coalesce(may_begin_late, false)))
  AND (rows <> head_seq - first_seq + 1 OR last_seq IS DISTINCT FROM head_seq
       OR (first_seq <> 1 AND NOT coalesce(may_begin_late, false)))
UNION ALL
SELECT 'published_beyond_topic', lane::text,
       format('lane %%s: %%s are said to be published, the topic ends with %%s', lane, published_seq, coalesce(last_seq, 0))
FROM lane_before WHERE published_seq > coalesce(last_seq, 0) AND (low = 0 OR last_seq IS NOT NULL);

-- name: lanes_behind
-- Lanes whose topic has more than they say is published; a relay notes it a moment after its commit.
SELECT l.lane FROM onceflow.lane AS l JOIN lane_before AS b USING (lane)
WHERE b.last_seq > l.published_seq ORDER BY l.lane;

-- name: count_outcomes
SELECT count(*), count(*) FILTER (WHERE r.seq <= l.published_seq) FROM onceflow.outcome AS r JOIN onceflow.lane AS l USING (lane)
WHERE r.created_at >= %(since)s AND r.created_at < %(until)s;

-- name: unexplained_count
SELECT count(*) FROM unexplained;

-- name: unexplained
SELECT kind, subject, detail FROM unexplained ORDER BY kind, subject LIMIT %(limit)s;

-- name: retired_until
SELECT nullif(max(gone_before), '-infinity') FROM onceflow.retention WHERE name = 'inbox';
