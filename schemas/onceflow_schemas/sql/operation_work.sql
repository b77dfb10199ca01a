-- What workers of operations read and write.  Isolation: READ COMMITTED.  Every write names the fence of its lease; the
-- database's clock decides about leases and time.  Lock order: operations (claimed ones skip what is locked), account
-- budgets, then what a batch locks (lanes last).

-- name: claim
-- Takes due operations for one worker, and reads them with what the attempts of their present step tell.  SKIP LOCKED keeps
-- workers out of each other's way; the lease says until when nobody else may, and what this worker still holds it does not
-- take again, or it would send while its own former call is on its way.
-- An account whose calls to Stripe are blocked is not looked at, however many wait there.  An order_key's operations go one
-- at a time in the order of their requests, and one in review holds those after it: who is behind another is put off, so that
-- it is not looked at each time, and becomes due when the one before it is settled (order_next).
-- statement_timestamp, because an index is not used with a volatile function; the transaction is short.
-- Indexes: operation_due, operation_order, primary keys of operation and attempt, review_open.
-- The attempt in hand, of a worker that went away, does not count as sent: what it proves is told by its own evidence.
WITH road AS MATERIALIZED (
    SELECT served.account, able.kind
    FROM unnest(%(accounts)s::text[]) AS served (account) CROSS JOIN unnest(%(kinds)s::text[]) AS able (kind)
    WHERE able.kind <> 'stripe' OR NOT EXISTS (
        SELECT FROM onceflow.account_budget AS budget
        WHERE budget.account = served.account AND budget.mode = %(mode)s AND budget.blocked_until > statement_timestamp())
), due AS MATERIALIZED (
    SELECT found.*
    FROM road CROSS JOIN LATERAL (
        SELECT id, account, order_key, next_attempt_at, seq
        FROM onceflow.operation
        WHERE mode = %(mode)s AND operation.account = road.account AND operation.kind = road.kind
          AND next_attempt_at < 'infinity' AND next_attempt_at <= statement_timestamp()
          AND (lease_owner IS NULL OR lease_until <= statement_timestamp()) AND NOT id = ANY(%(held)s)
          AND effect = ANY(%(effects)s)
        ORDER BY next_attempt_at, seq
        LIMIT %(looked_at_max)s
        FOR UPDATE SKIP LOCKED
    ) AS found
), judged AS MATERIALIZED (
    SELECT id, next_attempt_at, seq, order_key IS NOT NULL AND EXISTS (
               SELECT FROM onceflow.operation AS before
               WHERE before.account = due.account AND before.mode = %(mode)s AND before.order_key = due.order_key
                 AND before.seq < due.seq AND before.state NOT IN ('succeeded', 'failed', 'canceled')) AS is_behind
    FROM due
), put_off AS (
    UPDATE onceflow.operation SET next_attempt_at = clock_timestamp() + make_interval(secs => %(behind_seconds)s)
    FROM judged
    WHERE operation.id = judged.id AND judged.is_behind
), taken AS (
    UPDATE onceflow.operation
    SET lease_owner = %(owner)s, lease_until = clock_timestamp() + make_interval(secs => %(ttl_seconds)s),
        next_attempt_at = clock_timestamp() + make_interval(secs => %(ttl_seconds)s), fence = fence + 1
    FROM (SELECT id FROM judged WHERE NOT is_behind ORDER BY next_attempt_at, seq LIMIT %(count)s) AS chosen
    WHERE operation.id = chosen.id
    RETURNING operation.*
)
-- One row in any case, which says how many were put off.
SELECT (SELECT count(*) FROM judged WHERE is_behind) AS behind, leased.*
FROM (SELECT) AS always LEFT JOIN (
SELECT taken.seq, taken.id, taken.account, taken.mode, taken.effect, taken.subject, taken.occurrence, taken.order_key, taken.kind,
       taken.args::text AS args, taken.state, taken.steps::text AS steps, taken.step, taken.api_version, taken.requested_at,
       taken.window_from, taken.external_id, taken.fence, taken.tries, taken.looked_up_at, taken.action_until,
       taken.conclusion::text AS conclusion, taken.cancel_asked, taken.look_asked, taken.look_at, taken.surplus, taken.told,
       taken.last_error, taken.result::text AS result, review.code AS review_code,
       taken.restores < coalesce((SELECT restores FROM onceflow.deployment), 0) AS restored,
       tried.attempts, tried.in_hand_at, tried.sent, tried.last_sent_at, tried.last_proof, clock_timestamp() AS read_at
FROM taken
LEFT JOIN onceflow.review ON review.operation_id = taken.id AND review.decided_at IS NULL
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
            SELECT n, sent_at, evidence, attempt.step = taken.step AS of_step,
                   taken.state = 'sending' AND n = max(n) OVER () AS in_hand
            FROM onceflow.attempt WHERE attempt.operation_id = taken.id
        ) AS every
    ) AS counted
) AS tried
) AS leased ON true
ORDER BY leased.seq;

-- name: recheck
-- The last look before the send, outside any transaction: is the operation still ours, long enough for the call, and may it
-- be sent by the clock that all share?  Who is missing in the answer has lost its lease.
SELECT operation.id,
       lease_until > clock_timestamp() + make_interval(secs => %(call_seconds_max)s) AS long_enough,
       held.send_before IS NULL OR clock_timestamp() < held.send_before AS in_time
FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[], %(send_befores)s::timestamptz[]) AS held (id, fence, send_before)
JOIN onceflow.operation ON operation.id = held.id AND operation.fence = held.fence AND operation.lease_owner = %(owner)s;

-- name: settle_lock
-- Locks the rows whose fence is still ours; who is missing in the answer has lost its lease.  What others may have asked for
-- meanwhile is read with it.
SELECT operation.id, operation.cancel_asked, operation.look_asked, operation.look_at, clock_timestamp() AS locked_at
FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[]) AS held (id, fence)
JOIN onceflow.operation ON operation.id = held.id AND operation.fence = held.fence AND operation.lease_owner = %(owner)s
ORDER BY operation.id
FOR UPDATE OF operation;

-- name: budgets_open
-- A row for each account that this worker serves, with a full budget at its first time.
INSERT INTO onceflow.account_budget (account, mode, tokens)
SELECT account, %(mode)s, %(burst)s FROM unnest(%(accounts)s::text[]) AS asked (account)
ON CONFLICT DO NOTHING;

-- name: budget_take
-- Takes calls from the accounts' budgets, which all workers share, by the database's clock: as many as there are, none while
-- the account is blocked.  An account whose key was refused gets one call, and the next only after its answer may have come.
-- An account that has less than one call left is blocked until it has one again, so that it is not asked at every look.
WITH held AS MATERIALIZED (
    SELECT budget.account, asked.calls,
           least(%(burst)s, budget.tokens
                            + %(rate)s * greatest(0, extract(epoch FROM clock_timestamp() - budget.refilled_at))) AS tokens,
           coalesce(budget.blocked_until > clock_timestamp(), false) AS blocked, budget.paused_reason IS NOT NULL AS paused
    FROM unnest(%(accounts)s::text[], %(calls)s::integer[]) AS asked (account, calls)
    JOIN onceflow.account_budget AS budget ON budget.account = asked.account AND budget.mode = %(mode)s
    ORDER BY budget.account
    FOR UPDATE OF budget
), granted AS (
    SELECT account, tokens, blocked, paused,
           CASE WHEN blocked THEN 0 ELSE least(floor(tokens)::integer, calls, CASE WHEN paused THEN 1 END) END AS calls
    FROM held
)
UPDATE onceflow.account_budget AS budget
SET tokens = granted.tokens - granted.calls, refilled_at = clock_timestamp(),
    blocked_until = CASE WHEN granted.blocked THEN budget.blocked_until
                         WHEN granted.paused THEN clock_timestamp() + make_interval(secs => %(call_seconds_max)s)
                         WHEN granted.tokens - granted.calls < 1
                         THEN clock_timestamp() + make_interval(secs => (1 - granted.tokens + granted.calls) / %(rate)s) END
FROM granted
WHERE budget.account = granted.account AND budget.mode = %(mode)s
RETURNING budget.account, granted.calls, granted.paused, budget.refusals;

-- name: budget_block
-- Nothing more is sent for these accounts until then: their limit is met (no reason), or their key is refused.
UPDATE onceflow.account_budget AS budget
SET blocked_until = greatest(coalesce(budget.blocked_until, '-infinity'),
                             clock_timestamp() + make_interval(secs => blocked.seconds)),
    paused_reason = coalesce(blocked.reason, budget.paused_reason),
    refusals = CASE WHEN blocked.reason IS NULL THEN budget.refusals ELSE blocked.refusals END
FROM unnest(%(accounts)s::text[], %(seconds)s::float8[], %(reasons)s::text[], %(refusals)s::integer[])
     AS blocked (account, seconds, reason, refusals)
WHERE budget.account = blocked.account AND budget.mode = %(mode)s;

-- name: budget_open
-- A call of these accounts was accepted: their keys work.
UPDATE onceflow.account_budget SET blocked_until = NULL, paused_reason = NULL, refusals = 0
WHERE account = ANY(%(accounts)s) AND mode = %(mode)s AND paused_reason IS NOT NULL;

-- name: attempts_add
-- Committed before the first byte is sent, so that a worker that dies leaves the trace that it may have been.
INSERT INTO onceflow.attempt (operation_id, n, step, name, fence, owner)
SELECT operation_id, n, step, name, fence, %(owner)s
FROM unnest(%(operation_ids)s::uuid[], %(ns)s::integer[], %(steps)s::integer[], %(names)s::text[], %(fences)s::bigint[])
     AS made (operation_id, n, step, name, fence);

-- name: attempts_again
-- Attempts that waited in this process and are sent only now: absence is judged from their time.
UPDATE onceflow.attempt SET sent_at = clock_timestamp()
FROM unnest(%(operation_ids)s::uuid[], %(ns)s::integer[]) AS again (operation_id, n)
WHERE attempt.operation_id = again.operation_id AND attempt.n = again.n;

-- name: attempts_settle
UPDATE onceflow.attempt
SET settled_at = clock_timestamp(), evidence = proved.evidence, detail = proved.detail, http_status = proved.http_status,
    request_id = proved.request_id
FROM unnest(%(operation_ids)s::uuid[], %(ns)s::integer[], %(evidences)s::text[], %(details)s::text[],
            %(http_statuses)s::integer[], %(request_ids)s::text[])
     AS proved (operation_id, n, evidence, detail, http_status, request_id)
WHERE attempt.operation_id = proved.operation_id AND attempt.n = proved.n;

-- name: operations_write
-- What was decided about operations whose fence is ours.  ``keep_lease`` while a call is on its way.  No next attempt means
-- that nothing is to be done.
WITH written AS (
    UPDATE onceflow.operation
    SET state = given.state, step = given.step, external_id = given.external_id, tries = given.tries,
        next_attempt_at = CASE WHEN given.keep_lease THEN operation.next_attempt_at
                               ELSE coalesce(given.next_attempt_at, 'infinity') END,
        lease_owner = CASE WHEN given.keep_lease THEN operation.lease_owner END,
        lease_until = CASE WHEN given.keep_lease THEN operation.lease_until END,
        looked_up_at = given.looked_up_at, action_until = given.action_until, conclusion = given.conclusion,
        look_asked = given.look_asked, look_at = given.look_at, surplus = string_to_array(given.surplus, ','),
        told = string_to_array(given.told, ','), last_error = given.last_error, result = given.result,
        settled_at = CASE WHEN given.state IN ('succeeded', 'failed', 'canceled')
                          THEN CASE WHEN operation.state = given.state THEN operation.settled_at ELSE clock_timestamp() END
                          WHEN given.state = 'review' THEN operation.settled_at END
    FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[], %(states)s::text[], %(steps)s::integer[], %(external_ids)s::text[],
                %(tries)s::integer[], %(next_attempt_ats)s::timestamptz[], %(keep_leases)s::boolean[],
                %(looked_up_ats)s::timestamptz[], %(action_untils)s::timestamptz[], %(conclusions)s::json[],
                %(look_askeds)s::boolean[], %(look_ats)s::text[], %(surpluses)s::text[], %(tolds)s::text[],
                %(last_errors)s::text[], %(results)s::json[])
         AS given (id, fence, state, step, external_id, tries, next_attempt_at, keep_lease, looked_up_at, action_until,
                   conclusion, look_asked, look_at, surplus, told, last_error, result)
    WHERE operation.id = given.id AND operation.fence = given.fence
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM written) = %(expected)s, 'OF005', 'another worker has an operation');

-- name: order_next
-- The first operations behind settled ones become due; one that somebody looks at right now finds out by itself.
-- Index: operation_order.
UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()
FROM (
    SELECT following.id
    FROM (SELECT DISTINCT account, order_key FROM onceflow.operation WHERE id = ANY(%(ids)s)) AS settled
    CROSS JOIN LATERAL (
        SELECT id FROM onceflow.operation
        WHERE account = settled.account AND mode = %(mode)s AND order_key = settled.order_key
          AND state NOT IN ('succeeded', 'failed', 'canceled')
        ORDER BY seq LIMIT 1
    ) AS first
    JOIN onceflow.operation AS following ON following.id = first.id
    WHERE following.state = 'requested' AND following.lease_owner IS NULL AND following.tries = 0
    FOR UPDATE OF following SKIP LOCKED
) AS free
WHERE operation.id = free.id;

-- name: reviews_open
-- One open review per operation; a second reason does not hide the first.
INSERT INTO onceflow.review (operation_id, code, detail, evidence)
SELECT operation_id, code, detail, evidence
FROM unnest(%(operation_ids)s::uuid[], %(codes)s::text[], %(details)s::text[], %(evidences)s::json[])
     AS opened (operation_id, code, detail, evidence)
ON CONFLICT (operation_id) WHERE decided_at IS NULL DO NOTHING;

-- name: reviews_close
-- Evidence has settled what waited for a person.
UPDATE onceflow.review SET decided_at = clock_timestamp(), decision = 'evidence', decided_by = %(owner)s, reason = 'settled'
WHERE operation_id = ANY(%(operation_ids)s) AND decided_at IS NULL;

-- name: heartbeat
-- Leases of calls that are still on their way; who is missing in the answer has lost its operation.
UPDATE onceflow.operation
SET lease_until = clock_timestamp() + make_interval(secs => %(ttl_seconds)s),
    next_attempt_at = clock_timestamp() + make_interval(secs => %(ttl_seconds)s)
FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[]) AS held (id, fence)
WHERE operation.id = held.id AND operation.fence = held.fence AND operation.lease_owner = %(owner)s
RETURNING operation.id;

-- name: leases_end
-- A lease that ends later than any may be granted for was written by a clock that has jumped since: nobody waits for it.
-- Index: operation_leased.
UPDATE onceflow.operation SET lease_until = clock_timestamp(), next_attempt_at = clock_timestamp()
WHERE lease_owner IS NOT NULL AND lease_until > statement_timestamp() + make_interval(secs => %(ttl_seconds_max)s);

-- name: next_due
-- Seconds until something becomes due for this worker; NULL when nothing will.  What is due already and was not claimed waits
-- for an account.  Index: operation_due.
SELECT extract(epoch FROM least(
    (SELECT min(found.next_attempt_at)
     FROM unnest(%(accounts)s::text[]) AS served (account) CROSS JOIN unnest(%(kinds)s::text[]) AS able (kind)
     CROSS JOIN LATERAL (
         SELECT next_attempt_at FROM onceflow.operation
         WHERE mode = %(mode)s AND operation.account = served.account AND operation.kind = able.kind
           AND next_attempt_at < 'infinity' AND next_attempt_at > statement_timestamp() AND effect = ANY(%(effects)s)
         ORDER BY next_attempt_at, seq LIMIT 1
     ) AS found),
    (SELECT min(blocked_until) FROM onceflow.account_budget
     WHERE blocked_until > statement_timestamp() AND mode = %(mode)s AND account = ANY(%(accounts)s))
) - clock_timestamp())::float8;

-- name: hints_open
-- What webhooks said about operations that nobody works on right now; and, after a while, about operations that are not here:
-- another deployment may use the same account.  What is said of another object than the one that is to be looked at waits until
-- that look is over.  Index: operation_hint_open.
SELECT hint.operation_id, hint.event, hint.object, hint.object_id, hint.status, operation.state, operation.external_id,
       operation.steps::text AS steps, operation.step, operation.result::text AS result
FROM onceflow.operation_hint AS hint
LEFT JOIN onceflow.operation ON operation.id = hint.operation_id
WHERE hint.taken_at IS NULL
  AND CASE WHEN operation.id IS NULL
           THEN hint.noted_at < statement_timestamp() - make_interval(mins => %(stranger_minutes)s)
           ELSE (operation.lease_owner IS NULL OR operation.lease_until <= statement_timestamp())
                AND (NOT operation.look_asked OR operation.look_at = hint.object_id) END
ORDER BY hint.noted_at
LIMIT %(count)s
FOR UPDATE OF hint SKIP LOCKED;

-- name: look_now
-- Operations of which an object has to be looked at: a webhook said something new about it.  What it proves is found out by
-- the look-up.  One that is leased meanwhile, or is to be looked at for another object, keeps its hint.
UPDATE onceflow.operation
SET next_attempt_at = clock_timestamp(), look_asked = true, look_at = asked.look_at
FROM unnest(%(ids)s::uuid[], %(look_ats)s::text[]) AS asked (id, look_at)
WHERE operation.id = asked.id AND (lease_owner IS NULL OR lease_until <= clock_timestamp())
  AND (NOT look_asked OR operation.look_at = asked.look_at)
RETURNING operation.id;

-- name: hints_take
UPDATE onceflow.operation_hint SET taken_at = clock_timestamp()
FROM unnest(%(operation_ids)s::uuid[], %(events)s::text[]) AS taken (operation_id, event)
WHERE operation_hint.operation_id = taken.operation_id AND operation_hint.event = taken.event;

-- name: states
-- Counts for the metrics.  Settled operations are counted by the workers as they settle; these indexes hold the others.
SELECT state, count(*), coalesce(extract(epoch FROM clock_timestamp() - min(requested_at)), 0)::float8
FROM onceflow.operation
WHERE state NOT IN ('succeeded', 'failed', 'canceled')
GROUP BY state;

-- name: blocked_accounts
SELECT account, paused_reason FROM onceflow.account_budget
WHERE mode = %(mode)s AND account = ANY(%(accounts)s) AND paused_reason IS NOT NULL;

-- name: forget_plans
-- A plan that was made while a table was small reads all of it, and would be kept until the table is analyzed.
DISCARD PLANS;

-- name: wake_me
LISTEN onceflow_operations;
