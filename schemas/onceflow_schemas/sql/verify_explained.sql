-- The proof: objects at Stripe beside operations, and what a person has accepted.  In the transaction of ``verify.sql``.

-- name: make_listed_object
CREATE TEMPORARY TABLE listed_object (object_id text PRIMARY KEY) ON COMMIT DROP;

-- name: add_objects
INSERT INTO listed_object SELECT unnest(%(object_ids)s::text[]) ON CONFLICT DO NOTHING;

-- name: first_operation
SELECT extract(epoch FROM min(requested_at))::bigint FROM onceflow.operation WHERE account = %(listed_account)s AND mode = %(mode)s;

-- name: operation_hours
-- Operations by when they were requested: how many, and a hash of what objects are compared with, in whatever order.
SELECT extract(epoch FROM date_trunc('hour', requested_at, 'UTC'))::bigint AS hour, count(*),
       bit_xor(('x' || left(encode(sha256(convert_to(concat_ws(E'\n', id, state, external_id, surplus, args), 'UTF8')), 'hex'), 16))::bit(64)::bigint)
FROM onceflow.operation
WHERE account = %(listed_account)s AND mode = %(mode)s AND requested_at >= to_timestamp(%(hours_since)s)
GROUP BY 1;

-- name: not_yet_due_since
SELECT extract(epoch FROM date_trunc('second', min(coalesce(created, received_at::timestamptz))))::bigint
FROM judged WHERE state = 'not_yet_due' AND account = %(listed_account)s;

-- name: judge_not_listed
-- Operations that made an object in a stretch that was listed as a whole, and whose object was not in it.
INSERT INTO unexplained
SELECT 'object_not_listed', format('operation %%s', id), format('Stripe does not list %%s', external_id)
FROM onceflow.operation
WHERE account = %(listed_account)s AND mode = %(mode)s AND state = 'succeeded' AND external_id IS NOT NULL
  AND steps -> 0 -> 'request' ->> 'path' = %(path)s
  AND requested_at >= to_timestamp(%(listed_since)s) AND settled_at < to_timestamp(%(listed_until)s)
  AND NOT EXISTS (SELECT FROM listed_object WHERE listed_object.object_id = operation.external_id);

-- name: take_accepted
-- What a person took as it is explains its difference, as long as that says the same.  Index: primary key of finding.
DELETE FROM unexplained
USING onceflow.finding
WHERE (finding.kind, finding.subject) = (unexplained.kind, unexplained.subject) AND finding.state = 'accepted'
  AND coalesce(finding.facts ->> 'detail', finding.facts ->> 'why', unexplained.detail) = unexplained.detail
RETURNING unexplained.kind, unexplained.subject, unexplained.detail, finding.id, finding.decided_by, finding.reason;
