-- Findings as people look at them and decide about them.  Isolation: READ COMMITTED.  Lock order: finding -> remedy -> audit.

-- name: listed
-- Pages by id, the latest first.  Indexes: finding_open, finding_id.
SELECT id, kind, subject, account, mode, state, facts, amount, currency, first_seen_at, last_seen_at, times, healed_at, decided_by,
       reason
FROM onceflow.finding
WHERE (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
  AND (%(kind)s::text IS NULL OR kind = %(kind)s)
  AND (%(account)s::text IS NULL OR account = %(account)s)
  AND (%(before)s::bigint IS NULL OR id < %(before)s)
ORDER BY id DESC
LIMIT %(rows_max)s;

-- name: counted
SELECT kind, state, count(*), min(first_seen_at), max(last_seen_at) FROM onceflow.finding
WHERE state IN ('open', 'recurring')
GROUP BY kind, state
ORDER BY kind, state;

-- name: remedies
SELECT action, who, result, at FROM onceflow.remedy WHERE finding_id = %(id)s ORDER BY id LIMIT %(rows_max)s;

-- name: accept
-- A person takes it as it is; the same facts again are no finding any more.
UPDATE onceflow.finding
SET state = 'accepted', decided_at = clock_timestamp(), decided_by = %(who)s, reason = %(reason)s
WHERE id = ANY(%(ids)s::bigint[]) AND state IN ('open', 'recurring')
RETURNING id, kind, subject;

-- name: audit
INSERT INTO onceflow.audit (who, action, subject, before, after, reason)
SELECT %(who)s, 'finding_accept', subject, '{"state": "open"}'::jsonb, '{"state": "accepted"}'::jsonb, %(reason)s
FROM unnest(%(subjects)s::text[]) AS accepted (subject);

-- name: heal_look
-- Workers look at once at operations that nobody has in hand.
UPDATE onceflow.operation SET look_asked = true, next_attempt_at = clock_timestamp()
WHERE id = ANY(%(ids)s::uuid[]) AND state IN ('unknown', 'pending', 'sending', 'requested')
  AND (lease_until IS NULL OR lease_until <= clock_timestamp());

-- name: heal_retry
UPDATE onceflow.parked_key SET due_at = clock_timestamp() WHERE order_key = ANY(%(order_keys)s::text[]) AND reason = 'retry';

-- name: healing
-- What was done by a person, with its reason.
INSERT INTO onceflow.remedy (finding_id, action, who, result)
SELECT id, %(action)s, %(who)s, %(reason)s FROM unnest(%(ids)s::bigint[]) AS healed (id)
ORDER BY id;

-- name: heal_audit
INSERT INTO onceflow.audit (who, action, subject, before, after, reason)
SELECT %(who)s, 'finding_heal', subject, '{"state": "open"}'::jsonb, json_build_object('action', %(action)s::text), %(reason)s
FROM unnest(%(subjects)s::text[]) AS healed (subject);
