-- The guard of the order of each object's events.  Isolation: READ COMMITTED.
-- Lock order: inbox -> object_guard -> user rows -> facts.  Both statements before the handlers take the objects sorted, so
-- that two batches with the same objects wait for each other instead of deadlocking.

-- name: insert_missing
-- A row to lock for objects that nobody has applied yet.  One of an unfinished transaction is waited for.
INSERT INTO onceflow.object_guard (account, mode, object_id)
SELECT account, mode, object_id
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(object_ids)s::text[]) AS asked (account, mode, object_id)
ON CONFLICT DO NOTHING;

-- name: lock
-- A statement of its own, so that it sees what was committed while the insert waited.  Index: primary key.
-- The time as a number: as a timestamp the last day of the year 9999 cannot be read in every time zone.
SELECT guard.account, guard.mode, guard.object_id, guard.kind, extract(epoch FROM guard.created)::bigint, guard.rank, guard.tombstone, guard.digest,
       guard.event_id, guard.type, guard.status
FROM onceflow.object_guard AS guard
JOIN unnest(%(accounts)s::text[], %(modes)s::text[], %(object_ids)s::text[]) AS asked (account, mode, object_id)
     USING (account, mode, object_id)
ORDER BY guard.account, guard.mode, guard.object_id
FOR UPDATE OF guard;

-- name: tail_guards
-- The rows are locked since before the handlers ran.
UPDATE onceflow.object_guard AS guard
SET kind = applied.kind, created = applied.created, rank = applied.rank::bigint[], tombstone = applied.tombstone::boolean,
    digest = applied.digest, event_id = applied.event_id, type = applied.type, status = applied.status,
    updated_at = clock_timestamp()
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(object_ids)s::text[], %(kinds)s::text[], %(createds)s::timestamptz[],
            %(ranks)s::text[], %(tombstones)s::text[], %(digests)s::bytea[], %(event_ids)s::text[], %(types)s::text[],
            %(statuses)s::text[])
     AS applied (account, mode, object_id, kind, created, rank, tombstone, digest, event_id, type, status)
WHERE guard.account = applied.account AND guard.mode = applied.mode AND guard.object_id = applied.object_id;

-- name: tail_stale
-- The markers are this transaction's own.
UPDATE onceflow.inbox SET is_stale = told.is_stale::boolean
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[], %(is_stales)s::text[])
     AS told (account, mode, event_id, is_stale)
WHERE inbox.account = told.account AND inbox.mode = told.mode AND inbox.event_id = told.event_id;
