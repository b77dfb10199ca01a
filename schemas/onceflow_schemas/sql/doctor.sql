-- What `onceflow doctor` asks of a database.  Nothing is changed; each its own transaction.

-- name: clock
SELECT clock_timestamp() AS now, current_user AS role, current_database() AS database;

-- name: deployment
SELECT id, accounts, mode, restores FROM onceflow.deployment;

-- name: lanes
SELECT lane, topic_id, state, detail FROM onceflow.lane ORDER BY lane;

-- name: missing_rights
-- Which of these rights the role lacks; an empty column asks for the right on the whole table.
SELECT asked.name, asked.privilege, asked.column_name
FROM unnest(%(tables)s::text[], %(privileges)s::text[], %(columns)s::text[]) AS asked (name, privilege, column_name)
WHERE NOT CASE WHEN asked.column_name = '' THEN has_table_privilege('onceflow.' || asked.name, asked.privilege)
               ELSE has_column_privilege('onceflow.' || asked.name, asked.column_name, asked.privilege) END;

-- name: schema_usage
SELECT has_schema_privilege('onceflow', 'USAGE') AS usage;

-- name: reads
-- Index: object_read_due for those that wait.
SELECT count(*) FILTER (WHERE state = 'asked') AS waiting, count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'asked' AND code = 'read_not_permitted') AS not_permitted,
       coalesce(extract(epoch FROM clock_timestamp() - min(asked_at) FILTER (WHERE state = 'asked')), 0)::float8
       AS oldest_seconds
FROM onceflow.object_read
WHERE state <> 'read';
