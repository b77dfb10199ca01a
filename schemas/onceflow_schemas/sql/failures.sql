-- What people see of parked and quarantined events and decide about them.  Isolation: READ COMMITTED.  A page of decisions
-- and its rows in audit are one transaction.
-- Lock order: inbox -> parked_key -> parked -> quarantine, each sorted by its primary key.  What decides is read by a
-- statement of its own after the lock that guards it, so that it sees what was committed before.

-- fragment: quarantine_rows
-- A row from before the columns type and failure_group has its type from the marker, and its error from code and detail.
-- A row that was retried and failed again has its marker back in quarantined, whatever the row remembers.
-- Indexes: primary keys of quarantine, inbox and parked_key.
FROM (
    SELECT kept.topic_id, kept.topic, kept.partition, kept."offset", kept.account, kept.mode, kept.event_id, kept.code,
           kept.detail, coalesce(kept.handler, '') AS handler, kept.order_key, kept.key, kept.attempts,
           kept.retry_asked_at IS NOT NULL AS asked, kept.decision, kept.decided_at, kept.decided_by, kept.dead_lettered_at,
           kept.quarantined_at, inbox.state, coalesce(kept.type, inbox.type, '') AS type,
           coalesce(substring(kept.failure_group FROM '[^ ]+$'),
                    CASE WHEN kept.traceback IS NULL THEN kept.code ELSE left(split_part(kept.detail, ':', 1), 100) END) AS error,
           coalesce((inbox.topic_id, inbox.partition, inbox."offset") = (kept.topic_id, kept.partition, kept."offset"), false)
               AS is_its_record,
           EXISTS (SELECT FROM onceflow.parked_key
                   WHERE parked_key.order_key = kept.order_key AND parked_key.reason = 'quarantined'
                     AND (parked_key.account, parked_key.mode, parked_key.event_id)
                         = (kept.account, kept.mode, kept.event_id)) AS blocks,
           NOT EXISTS (SELECT FROM onceflow.deployment
                       WHERE kept.account = ANY(deployment.accounts) AND kept.mode = deployment.mode
                         AND inbox.received_at >= statement_timestamp() - %(horizon_days)s::integer * interval '1 day'
           ) AS settings_refuse
    FROM onceflow.quarantine AS kept
    LEFT JOIN onceflow.inbox ON inbox.account = kept.account AND inbox.mode = kept.mode AND inbox.event_id = kept.event_id
) AS one

-- fragment: common_filter
-- A type may be a prefix and .*, as handlers are registered and replays are filtered.
WHERE (%(type)s::text IS NULL OR type = %(type)s::text
       OR (right(%(type)s::text, 2) = '.*' AND starts_with(type, left(%(type)s::text, -1))))
  AND (%(handler)s::text IS NULL OR handler = %(handler)s::text)
  AND (%(code)s::text IS NULL OR code = %(code)s::text)
  AND (%(error)s::text IS NULL OR error = %(error)s::text)
  AND (%(group)s::text IS NULL OR concat_ws(' ', type, coalesce(nullif(handler, ''), '-'), error) = %(group)s::text)
  AND (%(account)s::text IS NULL OR account = %(account)s::text)
  AND (%(order_key)s::text IS NULL OR order_key = %(order_key)s::text)
  AND (%(event_id)s::text IS NULL OR event_id = %(event_id)s::text)
  AND (%(topic)s::text IS NULL OR topic = %(topic)s::text)
  AND (%(partition)s::integer IS NULL OR partition = %(partition)s::integer)
  AND (%(from_offset)s::bigint IS NULL OR "offset" >= %(from_offset)s::bigint)
  AND (%(to_offset)s::bigint IS NULL OR "offset" <= %(to_offset)s::bigint)

-- fragment: quarantine_filter
-- include: common_filter
  AND (%(since)s::timestamptz IS NULL OR quarantined_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR quarantined_at < %(until)s::timestamptz)
  AND (NOT %(without_identity)s OR event_id IS NULL)
  AND (%(decided)s OR decision IS NULL OR (decision = 'retried' AND state = 'quarantined'))
  AND (%(ids)s::text[] IS NULL OR event_id = ANY(%(ids)s::text[])
       OR concat_ws('/', account, mode, event_id) = ANY(%(ids)s::text[])
       OR concat_ws('/', topic, partition, "offset") = ANY(%(ids)s::text[])
       OR concat_ws('/', translate(topic_id, '+/=', '-_'), partition, "offset") = ANY(%(ids)s::text[]))

-- fragment: parked_rows
-- Indexes: primary keys of parked, parked_key and inbox.
FROM (
    SELECT waits.account, waits.mode, waits.event_id, waits.order_key, waits.seq, waits.topic_id, waits.topic, waits.partition,
           waits."offset", waits.type, waits.code, waits.detail, coalesce(waits.handler, '') AS handler, waits.attempts,
           waits.parked_at, inbox.state, parked_key.reason, nullif(parked_key.due_at, 'infinity') AS due_at,
           coalesce(substring(waits.failure_group FROM '[^ ]+$'), '') AS error,
           (parked_key.account, parked_key.mode, parked_key.event_id) = (waits.account, waits.mode, waits.event_id) AS is_head,
           coalesce(parked_key.lease_until > statement_timestamp(), false) AS in_hand,
           parked_key.due_at <= statement_timestamp() AS is_due
    FROM onceflow.parked AS waits
    JOIN onceflow.parked_key ON parked_key.order_key = waits.order_key
    LEFT JOIN onceflow.inbox
           ON inbox.account = waits.account AND inbox.mode = waits.mode AND inbox.event_id = waits.event_id
) AS one

-- fragment: parked_filter
-- include: common_filter
  AND (%(since)s::timestamptz IS NULL OR parked_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR parked_at < %(until)s::timestamptz)
  AND (%(ids)s::text[] IS NULL OR event_id = ANY(%(ids)s::text[])
       OR concat_ws('/', account, mode, event_id) = ANY(%(ids)s::text[]))

-- name: now
SELECT clock_timestamp() AS now;

-- name: quarantine_listed
-- The latest first.
SELECT *
-- include: quarantine_rows
-- include: quarantine_filter
ORDER BY quarantined_at DESC, topic_id DESC, partition DESC, "offset" DESC
LIMIT %(count)s;

-- name: parked_listed
-- The latest first.
SELECT *
-- include: parked_rows
-- include: parked_filter
ORDER BY parked_at DESC, order_key DESC, seq DESC
LIMIT %(count)s;

-- name: quarantine_counted
-- What failed alike, and within it what decides alike.  It reads all rows that are meant.
SELECT type, handler, error, code, state, is_its_record, decision, asked, blocks, settings_refuse,
       count(*) AS events, min(quarantined_at) AS first_at, max(quarantined_at) AS last_at,
       max(coalesce(event_id, concat_ws('/', topic, partition, "offset"))) AS sample
-- include: quarantine_rows
-- include: quarantine_filter
GROUP BY type, handler, error, code, state, is_its_record, decision, asked, blocks, settings_refuse
ORDER BY events DESC
LIMIT %(count)s;

-- name: parked_counted
-- What failed alike, and within it what decides alike.  It reads all rows that are meant.
SELECT type, handler, error, state, reason, is_head, in_hand, is_due,
       count(*) AS events, min(parked_at) AS first_at, max(parked_at) AS last_at, max(event_id) AS sample
-- include: parked_rows
-- include: parked_filter
GROUP BY type, handler, error, state, reason, is_head, in_hand, is_due
ORDER BY events DESC
LIMIT %(count)s;

-- name: quarantine_page
-- From the end of a partition to its beginning: what was earlier is put before what was later.
SELECT topic_id, partition, "offset", account, mode, event_id
-- include: quarantine_rows
-- include: quarantine_filter
  AND (%(after_topic_id)s::text IS NULL
       OR (topic_id, partition, "offset") < (%(after_topic_id)s::text, %(after_partition)s::integer, %(after_offset)s::bigint))
ORDER BY topic_id DESC, partition DESC, "offset" DESC
LIMIT %(count)s;

-- name: parked_page
-- Index: parked_order.
SELECT order_key, seq, account, mode, event_id
-- include: parked_rows
-- include: parked_filter
  AND (%(after_order_key)s::text IS NULL OR (order_key, seq) > (%(after_order_key)s::text, %(after_seq)s::bigint))
ORDER BY order_key, seq
LIMIT %(count)s;

-- name: lock_markers
-- Sorted, as everybody locks them.  A redrive that has one in hand holds its lock.
SELECT FROM onceflow.inbox
JOIN unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS meant (account, mode, event_id)
     USING (account, mode, event_id)
ORDER BY inbox.account, inbox.mode, inbox.event_id
FOR UPDATE OF inbox;

-- name: quarantine_facts
SELECT *
-- include: quarantine_rows
WHERE (topic_id, partition, "offset") IN (
    SELECT * FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[]));

-- name: parked_facts
SELECT *
-- include: parked_rows
WHERE (account, mode, event_id) IN (SELECT * FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]));

-- name: begin_keys
-- For events that go back into parking and whose key waits for nothing.
INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at)
SELECT order_key, 'retry', account, mode, event_id, clock_timestamp()
FROM unnest(%(order_keys)s::text[], %(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[])
     AS meant (order_key, account, mode, event_id)
ORDER BY order_key
ON CONFLICT DO NOTHING;

-- name: lock_keys
-- A batch that wants to park behind such a key waits, and so does the end of a redrive.
SELECT order_key FROM onceflow.parked_key WHERE order_key = ANY(%(order_keys)s::text[])
ORDER BY order_key
FOR UPDATE;

-- name: park_again
-- Before whatever waits in the key already.  What is known of the failure stays with the event; tries are counted anew.  An
-- event that had waited for a handler long enough, or that a person had skipped, runs with those that there are.
INSERT INTO onceflow.parked (account, mode, event_id, order_key, seq, topic_id, partition, "offset", topic, key, value, body,
                             headers, record_time, type, code, detail, handler, traceback, failure_group, next_attempt_at)
SELECT kept.account, kept.mode, kept.event_id, meant.order_key,
       coalesce((SELECT min(parked.seq) FROM onceflow.parked WHERE parked.order_key = meant.order_key), 1)
           - row_number() OVER (PARTITION BY meant.order_key
                                ORDER BY kept.topic_id DESC, kept.partition DESC, kept."offset" DESC),
       kept.topic_id, kept.partition, kept."offset", kept.topic, kept.key, kept.value, kept.body, kept.headers, kept.record_time,
       coalesce(kept.type, inbox.type), kept.code, kept.detail,
       CASE WHEN kept.code NOT IN ('handler_missing', 'skipped') AND kept.decision IS DISTINCT FROM 'skipped' THEN kept.handler END,
       kept.traceback, kept.failure_group,
       clock_timestamp()
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(order_keys)s::text[])
     AS meant (topic_id, partition, "offset", order_key)
JOIN onceflow.quarantine AS kept USING (topic_id, partition, "offset")
JOIN onceflow.inbox ON inbox.account = kept.account AND inbox.mode = kept.mode AND inbox.event_id = kept.event_id;

-- name: order_keys
-- An event that blocked nothing may come back behind others of its key: within one partition the log's order counts.
-- A key that waits for records of several partitions keeps the order in which they came.  Index: parked_order.
WITH waiting AS (
    SELECT account, mode, event_id, order_key, seq,
           row_number() OVER (PARTITION BY order_key ORDER BY seq) AS place_now,
           row_number() OVER (PARTITION BY order_key ORDER BY "offset") AS place_in_log
    FROM onceflow.parked
    WHERE order_key = ANY(%(order_keys)s::text[])
      AND order_key NOT IN (SELECT order_key FROM onceflow.parked WHERE order_key = ANY(%(order_keys)s::text[])
                            GROUP BY order_key HAVING count(DISTINCT (topic_id, partition)) > 1)
)
UPDATE onceflow.parked SET seq = place.seq
FROM waiting JOIN waiting AS place ON place.order_key = waiting.order_key AND place.place_now = waiting.place_in_log
WHERE parked.account = waiting.account AND parked.mode = waiting.mode AND parked.event_id = waiting.event_id
  AND parked.seq <> place.seq;

-- name: set_states
UPDATE onceflow.inbox SET state = %(state)s
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS meant (account, mode, event_id)
WHERE inbox.account = meant.account AND inbox.mode = meant.mode AND inbox.event_id = meant.event_id
  AND inbox.state = %(from_state)s;

-- name: move_keys_on
-- The first that waits in each key is its head now, and due, unless the key still waits for a head that nobody has decided
-- about.  The fence is raised: whoever has the former head in hand, or events that now stand behind another, writes nothing.
-- Index: parked_order.
UPDATE onceflow.parked_key
SET reason = 'retry', account = head.account, mode = head.mode, event_id = head.event_id, due_at = clock_timestamp(),
    lease_owner = NULL, lease_until = NULL, fence = fence + 1
FROM (
    SELECT DISTINCT ON (order_key) order_key, account, mode, event_id
    FROM onceflow.parked WHERE order_key = ANY(%(order_keys)s::text[])
    ORDER BY order_key, seq
) AS head
WHERE parked_key.order_key = head.order_key
  AND CASE WHEN parked_key.reason = 'quarantined'
           THEN (parked_key.account, parked_key.mode, parked_key.event_id) IN (
               SELECT * FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]))
           ELSE (parked_key.account, parked_key.mode, parked_key.event_id) <> (head.account, head.mode, head.event_id)
                OR parked_key.lease_owner IS NOT NULL END;

-- name: end_keys
-- Keys in which nothing waits any more, with the same exception.
DELETE FROM onceflow.parked_key
WHERE order_key = ANY(%(order_keys)s::text[])
  AND NOT EXISTS (SELECT FROM onceflow.parked WHERE parked.order_key = parked_key.order_key)
  AND (reason <> 'quarantined' OR (account, mode, event_id) IN (
      SELECT * FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[])));

-- name: try_keys_now
-- Not one that is in hand: its end says when it is due again.
WITH moved AS (
    UPDATE onceflow.parked_key SET due_at = clock_timestamp()
    WHERE order_key = ANY(%(order_keys)s::text[]) AND reason = 'retry' AND due_at > clock_timestamp()
      AND (lease_until IS NULL OR lease_until <= clock_timestamp())
    RETURNING order_key, account, mode, event_id, due_at
), shown AS (
    UPDATE onceflow.parked SET next_attempt_at = moved.due_at FROM moved
    WHERE parked.account = moved.account AND parked.mode = moved.mode AND parked.event_id = moved.event_id
)
SELECT account, mode, event_id FROM moved;

-- name: quarantine_skipped
-- The bytes of parked events that are skipped, with what is known of their last failure.  A record that was quarantined
-- before has its row still.
WITH gone AS (
    DELETE FROM onceflow.parked
    WHERE (account, mode, event_id) IN (
        SELECT * FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]))
    RETURNING *
)
INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail, handler,
                                 traceback, key, value, body, headers, record_time, order_key, failure_group, attempts,
                                 type, decided_at, decided_by, decision, reason)
SELECT topic_id, partition, "offset", topic, account, mode, event_id, 'skipped', coalesce(detail, ''), handler, traceback,
       key, value, body, headers, record_time, order_key, failure_group, attempts, type, clock_timestamp(), %(who)s,
       'skipped', %(reason)s
FROM gone
ON CONFLICT (topic_id, partition, "offset") DO UPDATE
SET code = excluded.code, detail = excluded.detail, handler = excluded.handler, traceback = excluded.traceback,
    order_key = excluded.order_key, failure_group = excluded.failure_group, attempts = excluded.attempts, type = excluded.type,
    quarantined_at = clock_timestamp(), decided_at = excluded.decided_at, decided_by = excluded.decided_by,
    decision = excluded.decision, reason = excluded.reason, retry_asked_at = NULL, retry_asked_by = NULL;

-- name: lock_quarantined
-- Sorted, as the last lock of a page.  Index: primary key of quarantine.
SELECT FROM onceflow.quarantine
JOIN unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[]) AS meant (topic_id, partition, "offset")
     USING (topic_id, partition, "offset")
ORDER BY quarantine.topic_id, quarantine.partition, quarantine."offset"
FOR UPDATE OF quarantine;

-- name: quarantine_decide
-- Only from what the verdict was made on: rows without a marker are guarded by nothing else.
UPDATE onceflow.quarantine
SET decision = %(decision)s, decided_at = clock_timestamp(), decided_by = %(who)s, reason = %(reason)s, retry_asked_at = NULL,
    retry_asked_by = NULL
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(decisions)s::text[])
     AS meant (topic_id, partition, "offset", decision)
WHERE quarantine.topic_id = meant.topic_id AND quarantine.partition = meant.partition
  AND quarantine."offset" = meant."offset" AND quarantine.decision IS NOT DISTINCT FROM meant.decision
RETURNING quarantine.topic_id, quarantine.partition, quarantine."offset";

-- name: quarantine_ask
-- A processor judges these records again, by its settings.
UPDATE onceflow.quarantine
SET retry_asked_at = clock_timestamp(), retry_asked_by = %(who)s, reason = %(reason)s, decision = NULL, decided_at = NULL,
    decided_by = NULL
FROM unnest(%(topic_ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(decisions)s::text[])
     AS meant (topic_id, partition, "offset", decision)
WHERE quarantine.topic_id = meant.topic_id AND quarantine.partition = meant.partition
  AND quarantine."offset" = meant."offset" AND quarantine.retry_asked_at IS NULL
  AND quarantine.decision IS NOT DISTINCT FROM meant.decision
RETURNING quarantine.topic_id, quarantine.partition, quarantine."offset";

-- name: audit_all
INSERT INTO onceflow.audit (who, action, subject, before, after, reason)
SELECT %(who)s, %(action)s, meant.subject, meant.before, meant.after, %(reason)s
FROM unnest(%(subjects)s::text[], %(befores)s::json[], %(afters)s::json[]) AS meant (subject, before, after);

-- name: quarantine_shown
-- By primary key.
SELECT kept.value, kept.key, kept.headers, kept.record_time, kept.traceback, kept.detail, kept.reason, kept.retry_asked_at,
       kept.retry_asked_by
FROM onceflow.quarantine AS kept
WHERE kept.topic_id = %(topic_id)s AND kept.partition = %(partition)s AND kept."offset" = %(offset)s;

-- name: parked_shown
-- By primary key.
SELECT waits.value, waits.key, waits.headers, waits.record_time, waits.traceback, waits.detail, parked_key.lease_owner,
       parked_key.lease_until, parked_key.account AS head_account, parked_key.mode AS head_mode,
       parked_key.event_id AS head_event_id
FROM onceflow.parked AS waits JOIN onceflow.parked_key ON parked_key.order_key = waits.order_key
WHERE waits.account = %(account)s AND waits.mode = %(mode)s AND waits.event_id = %(event_id)s;

-- name: waiting_behind
-- Index: parked_order.
SELECT event_id, type, count(*) OVER () AS events
FROM onceflow.parked
WHERE order_key = %(order_key)s AND (%(after_seq)s::bigint IS NULL OR seq > %(after_seq)s::bigint)
ORDER BY seq
LIMIT %(count)s;

-- name: audits
-- The latest last.  It reads the audit from its end.
SELECT at, who, action, before::text AS before, after::text AS after, reason
FROM (
    SELECT * FROM onceflow.audit WHERE subject = ANY(%(subjects)s::text[]) ORDER BY id DESC LIMIT %(count)s
) AS latest
ORDER BY id;
