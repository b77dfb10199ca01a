-- The proof: rows that are held against each other, or against themselves, whatever topics and Stripe say; part of ``verify.sql``.

-- name: operations_asked
-- Of each operation of the window what its id is made of, and whether its arguments are the ones that it was asked for with.
SELECT id, account, mode, effect, subject, occurrence,
       args_sha256 <> sha256(convert_to(args::text, 'UTF8')
                             || coalesce('\x00'::bytea || convert_to(order_key, 'UTF8'), '')) AS args_differ
FROM onceflow.operation
WHERE requested_at >= %(since)s AND requested_at < %(until)s AND (%(account)s::text IS NULL OR account = %(account)s);

-- name: judge_keys
-- A key that is to be tried waits for one of its own events.  One statement sees key and event as one transaction left them.
INSERT INTO unexplained
SELECT 'parked_differs', format('%%s/%%s', k.account, k.event_id), 'an order key waits for it, and it does not wait in that key'
FROM onceflow.parked_key AS k
WHERE k.reason IN ('retry', 'reading') AND (%(account)s::text IS NULL OR k.account = %(account)s)
  AND NOT EXISTS (SELECT FROM onceflow.parked AS w
                  WHERE (w.account, w.mode, w.event_id) = (k.account, k.mode, k.event_id) AND w.order_key = k.order_key);
