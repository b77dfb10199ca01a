-- What runs inside the transaction of an application: at once, without a check that would end that transaction.
-- The role onceflow_application may do this, read operations, and nothing else.

-- name: deployment
-- With the transaction's number, by which its end is noticed.
SELECT id, accounts, mode, pg_current_xact_id()::text FROM onceflow.deployment;

-- name: transaction
SELECT pg_current_xact_id_if_assigned()::text;

-- name: take_fact
-- Waits for whoever holds it in an open transaction.  One row: it is ours.
INSERT INTO onceflow.fact (namespace, key, cause) VALUES (%(namespace)s, %(key)s, %(cause)s) ON CONFLICT DO NOTHING;

-- name: stage_outcome
-- An application's transaction may be long, so it takes no lane.
INSERT INTO onceflow.outcome_staged (outcome_id, type, key, value, cause)
VALUES (%(outcome_id)s, %(type)s, %(key)s, %(value)s, %(cause)s)
ON CONFLICT DO NOTHING;
