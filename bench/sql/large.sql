-- Ten million markers, as a deployment has them that takes 140,000 events a day and keeps each for 72 days.

-- name: unindexed
-- The index is built after the rows are there: sorted, and as dense as one that grew at its right end.
ALTER TABLE onceflow.inbox DROP CONSTRAINT inbox_pkey;

-- name: markers
-- Ids as Stripe makes them: letters that rise with the time, the account's own part, and eight of chance; a third begin
-- with evt_3 (bench/large.py makes those of the new events so).  One in ten is older than 72 days.
INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, api_version, topic_id, partition, "offset",
                            body_sha256, event_created, received_at, processed_at, handler_set)
SELECT 'acct_bench', 'test',
       'evt_' || CASE WHEN n %% 3 = 0 THEN '3N' ELSE '1N' END || lpad(to_hex((n * 6912000 / %(count)s)::integer), 6, '0') || 'kYlo2C' || substr(md5(n::text), 1, 8),
       CASE WHEN n %% 5 = 0 THEN 'ignored' ELSE 'processed' END,
       (ARRAY['payment_intent.succeeded', 'charge.succeeded', 'invoice.paid', 'customer.subscription.updated'])[n %% 4 + 1],
       'pi_' || substr(md5('object' || n), 1, 24), '2026-10-28.endive', 'bench-former-topic-id', (n %% 6)::integer, n / 6,
       sha256(n::text::bytea), at, at, at, '0123456789abcdef'
FROM generate_series(1, %(count)s::bigint) AS n,
     LATERAL (SELECT clock_timestamp() - make_interval(secs => 80 * 86400 * (1 - n::double precision / %(count)s))) AS t (at);

-- name: index
ALTER TABLE onceflow.inbox ADD CONSTRAINT inbox_pkey PRIMARY KEY (account, mode, event_id);

-- name: vacuum
VACUUM (ANALYZE, FREEZE) onceflow.inbox;

-- name: size
SELECT pg_table_size('onceflow.inbox') / 1048576.0, pg_indexes_size('onceflow.inbox') / 1048576.0;

-- name: lease
INSERT INTO onceflow.lease (name, owner, token, lease_until) VALUES (%(name)s, 'bench', 1, 'infinity');
