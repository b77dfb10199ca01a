-- What the peers run: one event or one batch, each set-based where it can be.

-- name: event
INSERT INTO bench.event (id, type, object_id, created) VALUES (%s, %s, %s, to_timestamp(%s))
ON CONFLICT DO NOTHING;

-- name: outcome
INSERT INTO bench.outcome (id, type, key, value, event_id) VALUES (%s, %s, %s, %s, %s);

-- name: events
-- Sorted by the caller, so that two consumers cannot deadlock; repeats come back empty.
INSERT INTO bench.event (id, type, object_id, created)
SELECT id, type, object_id, to_timestamp(created)
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[]) AS offered (id, type, object_id, created)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: outcomes
INSERT INTO bench.outcome (id, type, key, value, event_id)
SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[], %s::text[]);

-- name: unsent
SELECT id, type, key, value, event_id, created_at FROM bench.outcome
WHERE sent_at IS NULL
ORDER BY created_at
LIMIT 500
FOR UPDATE SKIP LOCKED;

-- name: mark_sent
UPDATE bench.outcome SET sent_at = clock_timestamp() WHERE id = ANY(%s);
