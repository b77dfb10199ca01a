-- Asking for operations: from the tail of a batch, from a settled callback, and from an application's own transaction.
-- Isolation: READ COMMITTED.  Lock order: facts -> operations -> progress -> lanes.

-- name: request
-- In the order of asking, which becomes the order of seq: an order_key's operations run in it.  A known id changes nothing.
-- The safe window starts at Stripe's created of the causing event where that is earlier.
INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, order_key, kind, args, args_sha256, cause,
                                steps, api_version, requested_at, window_from, restores)
SELECT asked.id, asked.account, asked.mode, asked.effect, asked.subject, asked.occurrence, asked.order_key, asked.kind,
       asked.args, asked.args_sha256, asked.cause, asked.steps, asked.api_version, moment.at,
       least(moment.at, asked.happened_at), coalesce((SELECT restores FROM onceflow.deployment), 0)
FROM unnest(%(ids)s::uuid[], %(accounts)s::text[], %(modes)s::text[], %(effects)s::text[], %(subjects)s::text[],
            %(occurrences)s::integer[], %(order_keys)s::text[], %(kinds)s::text[], %(args)s::json[],
            %(args_sha256s)s::bytea[], %(causes)s::text[], %(steps)s::json[], %(api_versions)s::text[],
            %(happened_ats)s::timestamptz[])
     WITH ORDINALITY AS asked (id, account, mode, effect, subject, occurrence, order_key, kind, args, args_sha256, cause,
                               steps, api_version, happened_at, position)
CROSS JOIN (SELECT clock_timestamp() AS at) AS moment
ORDER BY asked.position
ON CONFLICT DO NOTHING;

-- name: request_check
-- A statement of its own, so that it sees what somebody else has committed while the insert waited for it.
SELECT onceflow.ensure(
    NOT EXISTS (
        SELECT FROM unnest(%(ids)s::uuid[], %(args_sha256s)s::bytea[]) AS asked (id, args_sha256)
        JOIN onceflow.operation USING (id)
        WHERE operation.args_sha256 <> asked.args_sha256),
    'OF006', 'an operation was asked for before with other arguments');

-- name: known_operations
-- Which of these ids exist, and with which arguments.  Index: primary key of operation.
SELECT id, args_sha256 FROM onceflow.operation WHERE id = ANY(%(ids)s::uuid[]);

-- name: hints
-- What webhooks say about objects of operations.  The same event may be read again; what it says stays the same.
-- A key alone may be anybody's random one: it counts when the operation is there, or such hints would stay open for ever.
INSERT INTO onceflow.operation_hint (operation_id, event, object, object_id, status, created)
SELECT operation_id, event, object, object_id, status, created
FROM unnest(%(operation_ids)s::uuid[], %(events)s::text[], %(objects)s::text[], %(object_ids)s::text[],
            %(statuses)s::text[], %(createds)s::timestamptz[], %(markeds)s::boolean[])
     AS said (operation_id, event, object, object_id, status, created, marked)
WHERE marked OR EXISTS (SELECT FROM onceflow.operation WHERE operation.id = said.operation_id)
ON CONFLICT DO NOTHING;

-- name: patience
-- For facts and operations only: an application's transaction may hold one of them for as long as it likes.  The limit of
-- the other statements is kept for later in a setting of ours.
SELECT set_config(
    'lock_timeout',
    CASE WHEN set_config('onceflow.lock_timeout', current_setting('lock_timeout'), true) <> '' THEN %(lock_timeout)s END,
    true);

-- name: patience_over
SELECT set_config('lock_timeout', current_setting('onceflow.lock_timeout'), true);

-- name: probe_fact
-- Whether somebody's open transaction holds one of these facts; always rolled back.
INSERT INTO onceflow.fact (namespace, key, cause)
SELECT namespace, key, 'probe' FROM unnest(%(namespaces)s::text[], %(keys)s::text[]) AS asked (namespace, key)
ON CONFLICT DO NOTHING;

-- name: wake
-- From a connection of its own after COMMIT: in the batch's transaction it would make all commits of the database wait for
-- each other.
NOTIFY onceflow_operations;
