-- Parking: which keys wait, the events behind them, and redrives.  Isolation: READ COMMITTED; every check raises on the server.
-- Lock order: inbox -> ... -> operations -> parked_key (by order_key) -> parked -> progress -> lanes.

-- name: parked_keys
-- Which of these keys wait.  Asked in the pipeline of the claim.  Index: primary key of parked_key.
SELECT order_key FROM onceflow.parked_key WHERE order_key = ANY(%(order_keys)s::text[]);

-- name: park_keys
-- Makes the keys wait, or locks those that do: a redrive that is about to take the last event of a key away then waits, or has
-- taken it, and the key is made anew.  Everything before it is done then, so it is due at once.
INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at)
SELECT order_key, CASE WHEN wait_seconds IS NULL THEN 'quarantined' ELSE 'retry' END, account, mode, event_id,
       coalesce(clock_timestamp() + wait_seconds * interval '1 second', 'infinity')
FROM unnest(%(order_keys)s::text[], %(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[],
            %(waits_seconds)s::double precision[])
     AS given (order_key, account, mode, event_id, wait_seconds)
ORDER BY order_key
ON CONFLICT (order_key) DO UPDATE SET parked_at = parked_key.parked_at;

-- name: park
-- In the order of the batch, which gives them their places behind the key.
INSERT INTO onceflow.parked (account, mode, event_id, order_key, topic_id, partition, "offset", topic, key, value, body, headers,
                             record_time, type, code, detail, handler, traceback, failure_group, next_attempt_at)
SELECT account, mode, event_id, order_key, topic_id, partition, "offset", topic, key, value, body, headers, record_time, type,
       code, detail, handler, traceback, failure_group,
       CASE WHEN code IS NOT NULL THEN clock_timestamp() + wait_seconds * interval '1 second' END
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(order_keys)s::text[], %(topic_ids)s::text[],
            %(partitions)s::integer[], %(offsets)s::bigint[], %(topics)s::text[], %(keys)s::bytea[], %(values)s::bytea[],
            %(bodies)s::bytea[], %(headers)s::json[], %(record_times)s::timestamptz[], %(types)s::text[], %(codes)s::text[],
            %(details)s::text[], %(handlers)s::text[], %(tracebacks)s::text[], %(failure_groups)s::text[],
            %(waits_seconds)s::double precision[])
     AS given (account, mode, event_id, order_key, topic_id, partition, "offset", topic, key, value, body, headers, record_time,
               type, code, detail, handler, traceback, failure_group, wait_seconds);

-- name: claim_key
-- Leases the key that is due first; no row: nothing is due.  A lease that ends later than any that is taken now was written by a
-- clock that had jumped.  The time is the statement's, because one that changes while it runs cannot be looked up in an index.
-- Index: parked_key_due.
WITH due AS (
    SELECT order_key FROM onceflow.parked_key
    WHERE due_at < 'infinity' AND due_at <= statement_timestamp()
      AND (lease_until IS NULL OR lease_until <= statement_timestamp()
           OR lease_until > statement_timestamp() + (%(lease_seconds)s + 60) * interval '1 second')
    ORDER BY due_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE onceflow.parked_key
SET lease_owner = %(owner)s, lease_until = clock_timestamp() + %(lease_seconds)s * interval '1 second', fence = fence + 1
FROM due
WHERE parked_key.order_key = due.order_key
RETURNING parked_key.order_key, parked_key.fence;

-- name: claim_heads
-- The head of a leased key, and its try counted, committed before the try: one that kills the process is counted.  Events behind
-- a head come along when it and they were never tried, up to a number and a size, and as long as they follow each other in one
-- partition.  Index: parked_order.
WITH first AS (
    SELECT account, mode, event_id, seq, attempts + open_tries = 0 AND code IS NULL AS is_fresh, topic_id, partition, "offset",
           coalesce(octet_length(value), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM onceflow.parked
    WHERE order_key = %(order_key)s
    ORDER BY seq
    LIMIT %(heads_max)s
), placed AS (
    SELECT account, mode, event_id, seq, bytes,
           is_fresh AND (topic_id, partition) = (first_value(topic_id) OVER line, first_value(partition) OVER line)
           AND "offset" > lag("offset", 1, -1::bigint) OVER line AS comes_along
    FROM first
    WINDOW line AS (ORDER BY seq)
), head AS (
    SELECT account, mode, event_id,
           row_number() OVER line = 1 OR (bool_and(comes_along) OVER line AND sum(bytes) OVER line <= %(bytes_max)s) AS is_tried
    FROM placed
    WINDOW line AS (ORDER BY seq)
), counted AS (
    UPDATE onceflow.parked SET attempts = attempts + 1, open_tries = open_tries + 1
    FROM head
    WHERE parked.account = head.account AND parked.mode = head.mode AND parked.event_id = head.event_id AND head.is_tried
    RETURNING parked.*
)
SELECT counted.account, counted.mode, counted.event_id, counted.attempts, counted.open_tries,
       counted.topic_id, counted.partition, counted."offset", counted.topic, counted.key, counted.value, counted.body,
       counted.headers::text, counted.record_time, counted.type, inbox.object_id, inbox.event_created, inbox.received_at,
       inbox.body_sha256, counted.handler
FROM counted
LEFT JOIN onceflow.inbox
    ON inbox.account = counted.account AND inbox.mode = counted.mode AND inbox.event_id = counted.event_id
ORDER BY counted.seq;

-- name: claim_parked
-- Takes the markers of parked events, with the columns that are offered to claim.  Whoever does not get one does nothing.
UPDATE onceflow.inbox
SET state = offered.state, processed_at = clock_timestamp(), handler_set = %(handler_set)s
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(states)s::text[])
     AS offered (account, mode, event_id, state)
WHERE inbox.account = offered.account AND inbox.mode = offered.mode AND inbox.event_id = offered.event_id
  AND inbox.state = 'parked'
RETURNING inbox.account, inbox.mode, inbox.event_id;

-- name: redrive_lock
-- The fence of a redrive.  From here on no batch adds an event behind the key without waiting.
WITH held AS (
    SELECT FROM onceflow.parked_key WHERE order_key = %(order_key)s AND fence = %(fence)s FOR UPDATE
)
SELECT onceflow.ensure((SELECT count(*) FROM held) = 1, 'OF007', 'somebody else redrives the key, or has decided about it');

-- name: leave
-- The events have another state now.
DELETE FROM onceflow.parked
USING unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS gone (account, mode, event_id)
WHERE parked.account = gone.account AND parked.mode = gone.mode AND parked.event_id = gone.event_id;

-- name: untried
-- Events that came along and stand behind one that has to wait: they did not run, so no try counts.
UPDATE onceflow.parked SET attempts = greatest(0, attempts - 1), open_tries = 0
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS behind (account, mode, event_id)
WHERE parked.account = behind.account AND parked.mode = behind.mode AND parked.event_id = behind.event_id;

-- name: park_again
UPDATE onceflow.parked
SET code = %(code)s, detail = %(detail)s, handler = %(handler)s, traceback = %(traceback)s, failure_group = %(failure_group)s,
    open_tries = 0, next_attempt_at = clock_timestamp() + %(wait_seconds)s * interval '1 second'
WHERE account = %(account)s AND mode = %(mode)s AND event_id = %(event_id)s;

-- name: key_waits
-- The key waits for its head: so many seconds, or (NULL) for a person.  The fence is raised: whatever the redrive had still in
-- hand must not run before that head.
UPDATE onceflow.parked_key
SET reason = CASE WHEN %(wait_seconds)s::double precision IS NULL THEN 'quarantined' ELSE 'retry' END,
    due_at = coalesce(clock_timestamp() + %(wait_seconds)s::double precision * interval '1 second', 'infinity'),
    account = %(account)s, mode = %(mode)s, event_id = %(event_id)s, lease_owner = NULL, lease_until = NULL,
    fence = fence + 1
WHERE order_key = %(order_key)s;

-- name: key_next
-- The head is done: the next event of the key is its head.  The key's row is locked, and this statement's snapshot is younger
-- than that lock, so it sees whatever was added.  The lease stays while the redrive has heads in hand: another process would only
-- wait for their markers.
UPDATE onceflow.parked_key
SET reason = 'retry', account = next.account, mode = next.mode, event_id = next.event_id,
    due_at = greatest(clock_timestamp(), next.next_attempt_at),
    lease_owner = CASE WHEN in_hand.still THEN lease_owner END, lease_until = CASE WHEN in_hand.still THEN lease_until END
FROM (
    SELECT account, mode, event_id, next_attempt_at FROM onceflow.parked
    WHERE order_key = %(order_key)s
    ORDER BY seq
    LIMIT 1
) AS next, (
    SELECT count(*) > 0 AS still
    FROM onceflow.parked
    JOIN unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS head (account, mode, event_id)
        USING (account, mode, event_id)
) AS in_hand
WHERE parked_key.order_key = %(order_key)s;

-- name: key_done
-- Nothing is left behind the key: its events run as they come.
DELETE FROM onceflow.parked_key
WHERE order_key = %(order_key)s AND NOT EXISTS (SELECT FROM onceflow.parked WHERE parked.order_key = %(order_key)s);

-- name: give_key_back
-- The try did not come to an end and nobody died: the key is due again after a while, and the try does not count.
WITH held AS (
    UPDATE onceflow.parked_key
    SET due_at = clock_timestamp() + %(wait_seconds)s * interval '1 second', lease_owner = NULL, lease_until = NULL
    WHERE order_key = %(order_key)s AND fence = %(fence)s AND coalesce(lease_owner, %(owner)s) = %(owner)s
    RETURNING order_key
)
UPDATE onceflow.parked SET attempts = greatest(0, attempts - 1), open_tries = greatest(0, open_tries - 1)
FROM held, unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS tried (account, mode, event_id)
WHERE parked.account = tried.account AND parked.mode = tried.mode AND parked.event_id = tried.event_id
  AND parked.order_key = held.order_key;

-- name: parked_overview
-- What the gauges show.  Counting stops at a limit, so that the question stays cheap whatever has piled up.
SELECT (SELECT count(*) FROM (SELECT FROM onceflow.parked LIMIT %(count_max)s) AS counted),
       count(*) FILTER (WHERE reason = 'retry'),
       count(*) FILTER (WHERE reason = 'quarantined'),
       count(*) FILTER (WHERE reason = 'reading'),
       coalesce(extract(epoch FROM clock_timestamp() - min(due_at) FILTER (WHERE due_at <= clock_timestamp())), 0)::float8
FROM (SELECT reason, due_at FROM onceflow.parked_key LIMIT %(count_max)s) AS keys;

-- name: asked_again
-- Records that nobody vouched for and that a person asks about again, the longest asked first; only those of topics that this
-- process reads.  Index: quarantine_asked.
SELECT topic_id, partition, "offset", topic, key, value, headers::text, record_time, retry_asked_at
FROM onceflow.quarantine
WHERE retry_asked_at IS NOT NULL AND topic = ANY(%(topics)s::text[])
ORDER BY retry_asked_at
LIMIT %(rows_max)s;

-- name: refused_again
UPDATE onceflow.quarantine SET code = %(code)s, detail = %(detail)s, retry_asked_at = NULL
WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s AND retry_asked_at = %(retry_asked_at)s;

-- name: marker_state
-- Of an event whose marker another record has.  Index: primary key of inbox.
SELECT state FROM onceflow.inbox WHERE account = %(account)s AND mode = %(mode)s AND event_id = %(event_id)s;

-- name: known_again
-- The record is vouched for now, and another record of its event has the marker: it keeps its row, with its identity, and a
-- later retry is judged by that marker.
UPDATE onceflow.quarantine
SET account = %(account)s, mode = %(mode)s, event_id = %(event_id)s, type = %(type)s, code = %(code)s, detail = %(detail)s,
    retry_asked_at = NULL
WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s AND retry_asked_at = %(retry_asked_at)s;

-- name: admitted_again
-- Last of its transaction: somebody else who admits the same record finds nothing to update then, and is rolled back.
WITH admitted AS (
    UPDATE onceflow.quarantine
    SET account = %(account)s, mode = %(mode)s, event_id = %(event_id)s, type = %(type)s, decision = 'retried',
        decided_at = clock_timestamp(), decided_by = retry_asked_by, retry_asked_at = NULL
    WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND "offset" = %(offset)s AND retry_asked_at = %(retry_asked_at)s
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM admitted) = 1, 'OF007', 'somebody else has admitted the record again');
