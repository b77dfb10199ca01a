-- The proof: rows that are held against each other, or against themselves, whatever topics and Stripe say; part of ``verify.sql``.

-- name: operations_asked
-- Of each operation of the window what its id is made of, and whether its arguments are the ones that it was asked for with.
SELECT id, account, mode, effect, subject, occurrence,
       args_sha256 <> sha256(convert_to(args::text, 'UTF8')
                             || coalesce('\x00'::bytea || convert_to(order_key, 'UTF8'), '')) AS args_differ
FROM onceflow.operation
WHERE requested_at >= %(since)s AND requested_at < %(until)s AND (%(account)s::text IS NULL OR account = %(account)s);
