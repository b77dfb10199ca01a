-- What runs inside the transaction of an application: at once, without a check that would end that transaction.
-- The role onceflow_application may do this, read operations, and nothing else.

-- name: deployment
-- With the transaction's number, by which its end is noticed.
SELECT id, accounts, mode, pg_current_xact_id()::text FROM onceflow.deployment;

-- name: transaction
SELECT pg_current_xact_id_if_assigned()::text;

-- name: take_fact
-- Waits for whoever holds it in an open transaction.  One row: it is ours.  What the topic knows of another cause is taken.
INSERT INTO onceflow.fact (namespace, key, cause)
SELECT %(namespace)s::text, %(key)s::text, %(cause)s::text
WHERE NOT EXISTS (
    SELECT FROM onceflow.imported_fact
    WHERE digest = onceflow.fact_digest(%(namespace)s::text, %(key)s::text) AND imported_fact.cause <> %(cause)s::text)
ON CONFLICT DO NOTHING;

-- name: stage_outcome
-- An application's transaction may be long, so it takes no lane.
INSERT INTO onceflow.outcome_staged (outcome_id, type, key, value, cause)
VALUES (%(outcome_id)s, %(type)s, %(key)s, %(value)s, %(cause)s)
ON CONFLICT DO NOTHING;
