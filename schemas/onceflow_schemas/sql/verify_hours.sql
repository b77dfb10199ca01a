-- The proof: what is known of hours without asking Stripe.  In the transaction of ``verify.sql``.

-- name: read_hours
-- What Stripe listed of an hour when nothing of it became visible late any more.  Index: primary key of reconcile_hour.
SELECT account, extract(epoch FROM hour)::bigint AS hour, listed, id_hash FROM onceflow.reconcile_hour
WHERE mode = %(mode)s AND listed IS NOT NULL AND hour >= %(since)s AND hour < %(until)s
  AND listed_at >= hour + %(late_seconds)s * interval '1 second';

-- name: hours_kept_out
-- As ``hours``, of those events that are kept for a person.
SELECT account, extract(epoch FROM date_trunc('hour', created, 'UTC'))::bigint AS hour, count(*) AS events,
       bit_xor(('x' || left(encode(sha256(convert_to(event_id, 'UTF8')), 'hex'), 16))::bit(64)::bigint) AS id_hash
FROM known JOIN (SELECT DISTINCT account, event_id FROM onceflow.quarantine WHERE mode = %(mode)s) AS kept USING (account, event_id)
WHERE created IS NOT NULL GROUP BY 1, 2;

-- name: first_hours
-- From when on all events of an account must be known: the first hour whose list was kept, or in which something of it was done;
-- where retention deletes markers, the first hour of which none is deleted.
WITH gone AS (
    SELECT coalesce(max(gone_before), '-infinity') AS before FROM onceflow.retention WHERE name = 'inbox'
), began AS (
    SELECT account, min(processed_at) AS at FROM onceflow.inbox WHERE mode = %(mode)s GROUP BY account
    UNION ALL
    SELECT account, min(hour) FROM onceflow.reconcile_hour WHERE mode = %(mode)s GROUP BY account
)
SELECT account, extract(epoch FROM greatest(date_trunc('hour', min(at), 'UTC'),
                                            date_trunc('hour', gone.before + interval '1 hour', 'UTC')))::bigint
FROM began CROSS JOIN gone GROUP BY account, gone.before;

-- name: out_of_reach
-- Times that nobody could read before Stripe forgot them.  Index: primary key of finding, by its kind.
SELECT account, extract(epoch FROM (facts ->> 'since')::timestamptz)::bigint AS since,
       extract(epoch FROM (facts ->> 'until')::timestamptz)::bigint AS until, subject, state = 'healed'
FROM onceflow.finding
WHERE kind = 'events_out_of_reach' AND mode = %(mode)s AND (%(account)s::text IS NULL OR account = %(account)s)
  AND (facts ->> 'since')::timestamptz < %(until)s AND (facts ->> 'until')::timestamptz > %(since)s
ORDER BY 1, 2;
