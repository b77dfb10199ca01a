-- What people see of operations and decide about them.  Isolation: READ COMMITTED.  A decision and its row in audit are one
-- transaction; the operation is locked first, and what is decided is carried out by a worker.

-- name: listed
-- The latest first, a page at a time.  What is settled is found by reading the table; the rest by operation_state.
SELECT found.seq, found.id, found.state, found.effect, found.subject, found.occurrence, found.order_key, found.account,
       found.mode, found.external_id, found.requested_at, found.settled_at,
       nullif(found.next_attempt_at, 'infinity') AS next_attempt_at,
       (SELECT count(*) FROM onceflow.attempt WHERE attempt.operation_id = found.id) AS attempts,
       review.code AS review_code, found.last_error
FROM (
    SELECT * FROM onceflow.operation
    WHERE (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
      AND (%(effect)s::text IS NULL OR effect = %(effect)s::text)
      AND (%(account)s::text IS NULL OR account = %(account)s::text)
      AND (%(order_key)s::text IS NULL OR order_key = %(order_key)s::text)
      AND (%(subject)s::text IS NULL OR subject = %(subject)s::text)
      AND (%(before)s::bigint IS NULL OR seq < %(before)s::bigint)
    ORDER BY seq DESC
    LIMIT %(count)s
) AS found
LEFT JOIN onceflow.review ON review.operation_id = found.id AND review.decided_at IS NULL
ORDER BY found.seq DESC;

-- name: lock
SELECT FROM onceflow.operation WHERE id = %(id)s FOR UPDATE;

-- name: operation
-- One operation as a worker reads it (query claim of operation_work), with what only people want to know.
SELECT operation.id, operation.account, operation.mode, operation.effect, operation.subject, operation.occurrence,
       operation.order_key, operation.kind, operation.args::text AS args, operation.state, operation.steps::text AS steps,
       operation.step, operation.api_version, operation.requested_at, operation.window_from, operation.external_id,
       operation.fence, operation.tries, operation.looked_up_at, operation.action_until,
       operation.conclusion::text AS conclusion, operation.cancel_asked, operation.look_asked, operation.look_at,
       operation.surplus, operation.told, operation.last_error, operation.result::text AS result, review.code AS review_code,
       operation.restores < coalesce((SELECT restores FROM onceflow.deployment), 0) AS restored,
       tried.attempts, tried.in_hand_at, tried.sent, tried.last_sent_at, tried.last_proof, clock_timestamp() AS read_at,
       operation.seq, operation.cause, operation.settled_at, operation.lease_owner, operation.lease_until,
       nullif(operation.next_attempt_at, 'infinity') AS next_attempt_at,
       before.id AS before_id, before.state AS before_state, budget.blocked_until, budget.paused_reason
FROM onceflow.operation
LEFT JOIN onceflow.review ON review.operation_id = operation.id AND review.decided_at IS NULL
LEFT JOIN onceflow.account_budget AS budget
       ON operation.kind = 'stripe' AND budget.account = operation.account AND budget.mode = operation.mode
CROSS JOIN LATERAL (
    SELECT coalesce(max(n), 0) AS attempts,
           max(sent_at) FILTER (WHERE in_hand) AS in_hand_at,
           coalesce(bool_or(counts), false) AS sent,
           max(sent_at) FILTER (WHERE counts) AS last_sent_at,
           (array_agg(evidence ORDER BY n DESC) FILTER (WHERE counts))[1] AS last_proof
    FROM (
        SELECT n, sent_at, evidence, in_hand,
               NOT in_hand AND of_step AND (evidence IS NULL OR NOT evidence = ANY(%(unsent)s)) AS counts
        FROM (
            SELECT n, sent_at, evidence, attempt.step = operation.step AS of_step,
                   operation.state = 'sending' AND n = max(n) OVER () AS in_hand
            FROM onceflow.attempt WHERE attempt.operation_id = operation.id
        ) AS every
    ) AS counted
) AS tried
LEFT JOIN LATERAL (
    SELECT earlier.id, earlier.state FROM onceflow.operation AS earlier
    WHERE earlier.account = operation.account AND earlier.mode = operation.mode
      AND earlier.order_key = operation.order_key AND earlier.seq < operation.seq
      AND earlier.state NOT IN ('succeeded', 'failed', 'canceled')
    ORDER BY earlier.seq LIMIT 1
) AS before ON operation.state NOT IN ('succeeded', 'failed', 'canceled')
WHERE operation.id = %(id)s;

-- name: attempts
-- The last ones, in their order.  By primary key.
SELECT n, name, owner, sent_at, settled_at, evidence, detail, http_status, request_id
FROM (
    SELECT * FROM onceflow.attempt WHERE operation_id = %(id)s ORDER BY n DESC LIMIT %(count)s
) AS latest
ORDER BY n;

-- name: hints
-- What webhooks said.  By primary key.
SELECT event, object, object_id, status, created, noted_at, taken_at
FROM onceflow.operation_hint WHERE operation_id = %(id)s
ORDER BY created, event LIMIT %(count)s;

-- name: reviews
SELECT opened_at, code, detail, decided_at, decided_by, decision, reason
FROM onceflow.review WHERE operation_id = %(id)s
ORDER BY id;

-- name: conclude
-- The fence is raised: what a worker may have in hand about it is dropped, and the decision is settled instead.  With a
-- conclusion, tries counts the settlements that failed.
UPDATE onceflow.operation
SET conclusion = %(conclusion)s::json, tries = 0, cancel_asked = cancel_asked OR %(cancel)s, fence = fence + 1,
    lease_owner = NULL, lease_until = NULL, next_attempt_at = clock_timestamp()
WHERE id = %(id)s;

-- name: review_decide
UPDATE onceflow.review
SET decided_at = clock_timestamp(), decided_by = %(who)s, decision = %(decision)s, reason = %(reason)s
WHERE operation_id = %(id)s AND decided_at IS NULL;

-- name: cancel
-- Noted only: whoever has it in hand finds it when the call comes back; else a worker looks at once.
UPDATE onceflow.operation
SET cancel_asked = true,
    next_attempt_at = CASE WHEN lease_until > clock_timestamp() THEN next_attempt_at ELSE clock_timestamp() END
WHERE id = %(id)s;

-- name: settle_now
-- What became of it is known, and its settled callback has failed: a worker tries it at once.
UPDATE onceflow.operation
SET next_attempt_at = CASE WHEN lease_until > clock_timestamp() THEN next_attempt_at ELSE clock_timestamp() END
WHERE id = %(id)s;

-- name: retry
-- The same frozen calls under another id, from now on: another wish, with a safe window of its own.
INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, order_key, kind, args, args_sha256, cause,
                                steps, api_version, requested_at, window_from, restores)
SELECT %(again)s, account, mode, effect, subject, %(occurrence)s, order_key, kind, args, args_sha256, %(cause)s,
       %(steps)s::json, api_version, moment.at, moment.at, coalesce((SELECT restores FROM onceflow.deployment), 0)
FROM onceflow.operation CROSS JOIN (SELECT clock_timestamp() AS at) AS moment
WHERE id = %(id)s
ON CONFLICT DO NOTHING;

-- name: accounts
-- What all workers together may send for each account, and why not.
SELECT account, mode, blocked_until, paused_reason, refusals,
       (SELECT count(*) FROM onceflow.operation
        WHERE operation.account = budget.account AND operation.mode = budget.mode AND operation.kind = 'stripe'
          AND operation.state NOT IN ('succeeded', 'failed', 'canceled', 'review')) AS waiting,
       clock_timestamp() AS read_at
FROM onceflow.account_budget AS budget
ORDER BY account, mode;

-- name: account_lock
SELECT blocked_until, paused_reason, refusals FROM onceflow.account_budget
WHERE account = %(account)s AND mode = %(mode)s FOR UPDATE;

-- name: account_go_on
-- The reason stays: one call is tried, and the next ones follow when it is accepted.
UPDATE onceflow.account_budget SET blocked_until = NULL WHERE account = %(account)s AND mode = %(mode)s;
