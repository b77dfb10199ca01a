-- What the processor asks of a database before it trusts it.

-- name: safety
SELECT current_setting('server_version_num')::integer AS version,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only') = 'on' AS read_only;

-- name: system
-- Identifier and timeline change when a database is put back from a backup or a standby is promoted.
SELECT system_identifier::text AS system_id,
       (SELECT timeline_id FROM pg_control_checkpoint())::bigint AS timeline
FROM pg_control_system();

-- name: deployment_freeze
-- The first process to start writes the row; every later one finds it.
INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)
VALUES (%(id)s, %(accounts)s, %(mode)s, %(system_id)s, %(timeline)s)
ON CONFLICT DO NOTHING;

-- name: deployment
SELECT id, accounts, mode, system_id, timeline, restores FROM onceflow.deployment;

-- name: deployment_restored
-- Counted once per change, whoever sees it first.  What a look-up did not find before a restore may have been sent since: it
-- is looked up again.  What is settled is never sent, so that its rows need no change.
WITH noticed AS (
    UPDATE onceflow.deployment
    SET system_id = %(system_id)s, timeline = %(timeline)s, restores = restores + 1
    WHERE (system_id, timeline) <> (%(system_id)s, %(timeline)s)
    RETURNING id
)
UPDATE onceflow.operation SET looked_up_at = NULL
WHERE looked_up_at IS NOT NULL AND state NOT IN ('succeeded', 'failed', 'canceled') AND EXISTS (SELECT FROM noticed);

-- name: deployment_accounts
-- Accounts are added, never dropped: events of a dropped account would turn from known to unknown.
UPDATE onceflow.deployment
SET accounts = ARRAY(SELECT DISTINCT unnest(accounts || %(accounts)s::text[]) ORDER BY 1);

-- name: lanes
SELECT lane, state, detail FROM onceflow.lane ORDER BY lane;
