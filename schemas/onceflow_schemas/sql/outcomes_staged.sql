-- Moving outcomes of application transactions into lanes, in short transactions.  Isolation: READ COMMITTED.

-- name: move_alone
-- One moves at a time, so that outcomes keep their order; the lock ends with the transaction.
SELECT pg_try_advisory_xact_lock(1869505381, 1937006946);

-- name: staged
-- In the order of asking.  The rows of transactions that are still open are not seen, and wait for nobody.
-- Index: primary key of outcome_staged.
SELECT id, outcome_id, type, key, value, cause FROM onceflow.outcome_staged
WHERE id > %(after)s
ORDER BY id
LIMIT %(count)s;

-- name: known_outcomes
-- What was moved before: the same cause has asked for it again.  Index: outcome (outcome_id, revision).
SELECT outcome_id FROM onceflow.outcome WHERE outcome_id = ANY(%(outcome_ids)s) AND revision = 1;

-- name: facts_of_causes
-- What these applications' causes claimed, the latest of each.  Index: fact_of_application.
SELECT fact.namespace, fact.key, fact.cause
FROM unnest(%(causes)s::text[]) AS asked (cause)
CROSS JOIN LATERAL (
    SELECT namespace, key, cause FROM onceflow.fact
    WHERE fact.cause = asked.cause AND fact.cause LIKE 'app:%%'
    ORDER BY created_at DESC
    LIMIT %(count)s
) AS fact
ORDER BY fact.cause, fact.namespace, fact.key;

-- name: unstage
DELETE FROM onceflow.outcome_staged WHERE id = ANY(%(ids)s);
