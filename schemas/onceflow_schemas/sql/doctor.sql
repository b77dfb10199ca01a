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
