-- Outcomes that wait to be published, and how far they are.

-- name: fill_lanes
-- One transaction makes them all visible at once, as rows that a batch transaction would have written.
WITH head AS (
    UPDATE onceflow.lane SET head_seq = head_seq + %(per_lane)s RETURNING lane, head_seq - %(per_lane)s AS before
), made AS (
    SELECT lane, before + n AS seq, md5('outcome ' || lane || '/' || (before + n)) AS text
    FROM head, generate_series(1, %(per_lane)s) AS n
)
INSERT INTO onceflow.outcome (lane, seq, outcome_id, revision, ce_id, type, key, value, cause)
SELECT lane, seq, text::uuid, 1, text::uuid, 'payment.succeeded', 'pi_' || left(text, 24),
       convert_to('{"amount":' || seq || ',"currency":"eur","customer":"cus_' || left(text, 24)
                  || '","description":null,"payment_intent":"pi_' || left(text, 24) || '"}', 'UTF8'),
       'event:acct_bench/test/evt_' || left(text, 24)
FROM made;

-- name: unpublished
SELECT EXISTS (SELECT FROM onceflow.lane WHERE published_seq < head_seq);

-- name: analyse
-- In the transaction that fills: without numbers the server would sort the whole table for each page of the usual relay.
ANALYZE onceflow.outcome, bench.outcome;

-- name: copy_for_polling
-- The same outcomes in the table of the usual relay.
INSERT INTO bench.outcome (id, type, key, value, event_id)
SELECT outcome.ce_id, outcome.type, outcome.key, outcome.value, outcome.cause
FROM onceflow.outcome JOIN onceflow.lane USING (lane)
WHERE outcome.seq > lane.head_seq - %(per_lane)s
ORDER BY outcome.seq;

-- name: unsent
-- Index: outcome_unsent.
SELECT EXISTS (SELECT FROM bench.outcome WHERE sent_at IS NULL);

-- name: rows
SELECT lane, seq, outcome_id, revision, ce_id, type, key, value, headers, cause, withheld, created_at
FROM onceflow.outcome JOIN onceflow.lane USING (lane)
WHERE outcome.seq > lane.head_seq - %(per_lane)s
ORDER BY seq;
