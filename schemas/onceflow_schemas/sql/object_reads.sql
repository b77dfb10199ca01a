-- Reads of objects at Stripe: asked for by batches, done by the workers of operations.

-- name: ask
-- Asks for reads.  One that nobody has in hand begins anew; one that waits already serves this event too, unless it has begun.
-- Each version of the API has its own, since what is read has the shape of one.
INSERT INTO onceflow.object_read (account, mode, kind, object_id, api_version, first_path, path)
SELECT account, mode, kind, object_id, api_version, path, path
FROM (SELECT account, mode, kind, object_id, coalesce(api_version, '') AS api_version, path
      FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(kinds)s::text[], %(object_ids)s::text[], %(paths)s::text[],
                  %(api_versions)s::text[]) AS given (account, mode, kind, object_id, path, api_version)) AS asked
ORDER BY account, mode, kind, object_id, api_version
ON CONFLICT (account, mode, kind, object_id, api_version) DO UPDATE
SET asked_at = clock_timestamp(), first_path = EXCLUDED.first_path, state = 'asked',
    path = CASE WHEN object_read.state = 'asked' AND object_read.parts > 0 THEN object_read.path ELSE EXCLUDED.path END,
    due_at = CASE WHEN object_read.state = 'asked' THEN object_read.due_at ELSE clock_timestamp() END,
    tries = CASE WHEN object_read.state = 'asked' THEN object_read.tries ELSE 0 END;

-- name: due
-- Reads that may be done now, of accounts to which something may be sent; a lease that ends later than any may be granted for
-- was written by a clock that has jumped since.  Index: object_read_due.
SELECT account, kind, object_id, api_version
FROM onceflow.object_read
WHERE mode = %(mode)s AND account = ANY(%(accounts)s) AND state = 'asked'
  AND (due_at <= statement_timestamp() OR lease_until > statement_timestamp() + make_interval(secs => %(ttl_seconds_max)s))
  AND NOT EXISTS (SELECT FROM onceflow.account_budget AS budget
                  WHERE budget.account = object_read.account AND budget.mode = object_read.mode
                    AND budget.blocked_until > clock_timestamp())
ORDER BY due_at
LIMIT %(count)s
FOR UPDATE SKIP LOCKED;

-- name: lease
-- Counted before the request: what ends its worker is not tried for ever.
UPDATE onceflow.object_read AS taken
SET lease_owner = %(owner)s, lease_until = clock_timestamp() + make_interval(secs => %(ttl_seconds)s),
    due_at = clock_timestamp() + make_interval(secs => %(ttl_seconds)s), fence = fence + 1, tries = tries + 1,
    begun_at = CASE WHEN parts = 0 THEN clock_timestamp() ELSE begun_at END
FROM unnest(%(accounts)s::text[], %(kinds)s::text[], %(object_ids)s::text[], %(api_versions)s::text[])
     AS due (account, kind, object_id, api_version)
WHERE taken.account = due.account AND taken.mode = %(mode)s AND taken.kind = due.kind AND taken.object_id = due.object_id
  AND taken.api_version = due.api_version
RETURNING taken.account, taken.mode, taken.kind, taken.object_id, taken.first_path, taken.path, taken.api_version,
          taken.fence, taken.tries, taken.parts, taken.part_bytes, taken.code, taken.detail;

-- name: hold
-- Locks the row when its fence is still ours; no row: another worker has it.
SELECT true
FROM onceflow.object_read
WHERE account = %(account)s AND mode = %(mode)s AND kind = %(kind)s AND object_id = %(object_id)s
  AND api_version = %(api_version)s AND fence = %(fence)s AND lease_owner = %(owner)s
FOR UPDATE;

-- name: part_add
INSERT INTO onceflow.object_read_part (account, mode, kind, object_id, api_version, n, stripe_at, body)
VALUES (%(account)s, %(mode)s, %(kind)s, %(object_id)s, %(api_version)s, %(n)s, %(stripe_at)s, %(body)s);

-- name: parts
SELECT stripe_at, body FROM onceflow.object_read_part
WHERE account = %(account)s AND mode = %(mode)s AND kind = %(kind)s AND object_id = %(object_id)s
  AND api_version = %(api_version)s
ORDER BY n;

-- name: parts_drop
DELETE FROM onceflow.object_read_part
WHERE account = %(account)s AND mode = %(mode)s AND kind = %(kind)s AND object_id = %(object_id)s
  AND api_version = %(api_version)s;

-- name: go_on
-- One of several requests is answered.
UPDATE onceflow.object_read
SET path = %(path)s, parts = parts + 1, part_bytes = part_bytes + %(bytes)s, tries = 0, due_at = clock_timestamp(),
    lease_owner = NULL, lease_until = NULL
WHERE account = %(account)s AND mode = %(mode)s AND kind = %(kind)s AND object_id = %(object_id)s
  AND api_version = %(api_version)s;

-- name: put_off
UPDATE onceflow.object_read
SET due_at = clock_timestamp() + make_interval(secs => %(seconds)s), tries = tries - %(uncounted)s,
    lease_owner = NULL, lease_until = NULL, http_status = %(http_status)s, code = %(code)s, detail = %(detail)s
WHERE account = %(account)s AND mode = %(mode)s AND kind = %(kind)s AND object_id = %(object_id)s
  AND api_version = %(api_version)s;

-- name: finish
-- The read has ended, well or not.  What was asked for after it had begun is read again.
UPDATE onceflow.object_read
SET state = CASE WHEN asked_at > begun_at THEN 'asked' ELSE %(state)s END,
    due_at = CASE WHEN asked_at > begun_at THEN clock_timestamp() ELSE 'infinity' END,
    path = first_path, tries = 0, parts = 0, part_bytes = 0, lease_owner = NULL, lease_until = NULL,
    read_at = begun_at, stripe_at = %(stripe_at)s, result = %(result)s, body = %(body)s, http_status = %(http_status)s,
    code = %(code)s, detail = %(detail)s
WHERE account = %(account)s AND mode = %(mode)s AND kind = %(kind)s AND object_id = %(object_id)s
  AND api_version = %(api_version)s;

-- name: wake
-- The keys whose head has waited for this read since before it began are due.  The time at which the head asked counts: one that
-- asked later waits for the next read.  Lock order: after object_read.  Index: parked_key_reading.
UPDATE onceflow.parked_key AS waiting
SET reason = 'retry', due_at = clock_timestamp()
FROM onceflow.parked AS head, onceflow.object_read AS read
WHERE waiting.reason = 'reading' AND waiting.read_object = %(object_id)s AND waiting.read_kind = %(kind)s
  AND waiting.read_version = %(api_version)s
  AND waiting.account = %(account)s AND waiting.mode = %(mode)s
  AND head.account = waiting.account AND head.mode = waiting.mode AND head.event_id = waiting.event_id
  AND read.account = waiting.account AND read.mode = waiting.mode AND read.kind = waiting.read_kind
  AND read.object_id = waiting.read_object AND read.api_version = waiting.read_version
  AND greatest(head.parked_at, head.next_attempt_at) <= read.read_at;

-- name: found
-- What was read for events, in every version.  A read that began before the event was parked may not know of it; what a thin event
-- says of itself never changes.  That a read has failed counts for the event that waited for it (since next_attempt_at): one behind it asks anew.
SELECT event.account, event.mode, event.event_id, read.kind, read.api_version, read.result, read.body, read.stripe_at, read.detail
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(object_ids)s::text[])
     AS event (account, mode, event_id, object_id)
JOIN onceflow.object_read AS read
  ON read.account = event.account AND read.mode = event.mode
     AND ((read.kind = 'thin_event' AND read.object_id = event.event_id)
          OR (read.kind IN ('object', 'lines') AND read.object_id = event.object_id))
LEFT JOIN onceflow.parked
  ON parked.account = event.account AND parked.mode = event.mode AND parked.event_id = event.event_id
WHERE CASE WHEN read.result = 'failed'
           THEN parked.code = 'reading' AND read.read_at >= greatest(parked.parked_at, parked.next_attempt_at)
           ELSE read.read_at >= parked.parked_at OR read.kind = 'thin_event' END;

-- name: found_then
-- What was read for events before they were processed.  A row has its last read only: one from after that is not what the event
-- was handled with.
SELECT event.account, event.mode, event.event_id, read.kind, read.api_version, read.result, read.body, read.stripe_at, read.detail
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(object_ids)s::text[])
     AS event (account, mode, event_id, object_id)
JOIN onceflow.inbox USING (account, mode, event_id)
JOIN onceflow.object_read AS read
  ON read.account = event.account AND read.mode = event.mode
     AND ((read.kind = 'thin_event' AND read.object_id = event.event_id)
          OR (read.kind = 'lines' AND read.object_id = event.object_id))
WHERE read.state = 'read' AND read.read_at <= inbox.processed_at;

-- name: wait
-- The keys whose head waits for a read, written after the keys themselves.  A key that has another head meanwhile keeps its reason.
UPDATE onceflow.parked_key AS waiting
SET reason = 'reading', due_at = 'infinity', read_kind = given.kind, read_object = given.object_id,
    read_version = coalesce(given.api_version, '')
FROM unnest(%(order_keys)s::text[], %(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(kinds)s::text[],
            %(object_ids)s::text[], %(api_versions)s::text[])
     AS given (order_key, account, mode, event_id, kind, object_id, api_version)
WHERE waiting.order_key = given.order_key AND waiting.account = given.account AND waiting.mode = given.mode
  AND waiting.event_id = given.event_id;

-- name: waiting
-- For the metrics: how many reads wait, since when, and how many of those are refused.  Index: object_read_due.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(asked_at)), 0)::float8,
       count(*) FILTER (WHERE code = 'read_not_permitted')
FROM onceflow.object_read
WHERE state = 'asked' AND mode = %(mode)s;
