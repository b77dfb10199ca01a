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
