-- What the relay reads and writes.  Isolation: READ COMMITTED.  Every write of a relay names the token of its lease and
-- raises OF005 when another relay holds it.  Lock order: lease, then lanes in their order (a batch transaction locks
-- lanes last and never the lease).

-- name: limits
-- Limits of this transaction only (SET would leak to other clients of a pooler).  They end a statement that waits for
-- a lane which somebody holds, and a transaction whose client was stopped while it held one: not in the middle of a
-- pipeline, so relays use none.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true);

-- name: lease_acquire
-- The token is raised at each acquisition, also by the former holder: work of a former term is fenced off.  The
-- database's clock decides, and it is read again after a wait for the row.  A lease that ends later than any may be
-- granted for was written by a clock that has jumped since: nobody waits for it.
INSERT INTO onceflow.lease AS held (name, owner, token, lease_until)
VALUES (%(name)s, %(owner)s, 1, clock_timestamp() + make_interval(secs => %(ttl_seconds)s))
ON CONFLICT (name) DO UPDATE
SET owner = EXCLUDED.owner, token = held.token + 1,
    lease_until = clock_timestamp() + make_interval(secs => %(ttl_seconds)s)
WHERE held.lease_until <= clock_timestamp()
   OR held.lease_until > clock_timestamp() + make_interval(secs => %(ttl_seconds_max)s)
RETURNING token;

-- name: lease_renew
-- A lease that ran out and that nobody took is still ours: the token is what fences.
UPDATE onceflow.lease SET lease_until = clock_timestamp() + make_interval(secs => %(ttl_seconds)s)
WHERE name = %(name)s AND token = %(token)s
RETURNING token;

-- name: lease_release
UPDATE onceflow.lease SET lease_until = clock_timestamp()
WHERE name = %(name)s AND token = %(token)s AND lease_until > clock_timestamp();

-- name: lanes
SELECT lane, head_seq, published_seq, topic_id, state, detail FROM onceflow.lane ORDER BY lane;

-- name: lane_ids
-- Record ids of the rows with these sequences.  Index: primary key of outcome.
SELECT asked.lane, outcome.seq, outcome.ce_id
FROM unnest(%(lanes)s::integer[], %(seqs)s::bigint[]) AS asked (lane, seq)
JOIN onceflow.outcome USING (lane, seq);

-- name: lane_ids_between
-- Record ids of a stretch of a lane, both ends included.  Index: primary key of outcome.
SELECT seq, ce_id FROM onceflow.outcome WHERE lane = %(lane)s AND seq BETWEEN %(first_seq)s AND %(last_seq)s;

-- name: outcome_page
-- The next rows of a lane, bounded in number and in bytes: a row is taken while those before it are below the limit.
-- Sequences are dense, so the number is bounded by the sequence and not by LIMIT: with LIMIT and old statistics the
-- server sorted the whole backlog for each page.
-- octet_length of a stored value does not fetch it.  Texts are made into their final bytes here: the server does it
-- five times faster than the relay, and beside it.  Index: primary key of outcome (its order is the order of commits).
SELECT lane, seq, convert_to(outcome_id::text, 'UTF8'), revision, convert_to(ce_id::text, 'UTF8'), type,
       convert_to(key, 'UTF8'), value, headers::text, convert_to(cause, 'UTF8'), withheld,
       convert_to(to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'UTF8')
FROM (
    SELECT outcome.*,
           sum(octet_length(value)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - octet_length(value) AS bytes_before
    FROM onceflow.outcome
    WHERE lane = %(lane)s AND seq > %(after_seq)s AND seq <= %(after_seq)s::bigint + %(rows_max)s
) AS page
WHERE bytes_before < %(bytes_max)s
ORDER BY seq;

-- name: mark_published
-- In one statement with the check of the lease, and never above the head or back.  A lane that was stopped by a row
-- which could not be published is open again as soon as something after that position went out.
WITH held AS MATERIALIZED (
    SELECT token FROM onceflow.lease WHERE name = %(name)s AND token = %(token)s FOR SHARE
), fence AS MATERIALIZED (
    SELECT onceflow.ensure(EXISTS (SELECT FROM held), 'OF005', 'another relay holds the lease') AS ok
), given AS (
    SELECT * FROM unnest(%(lanes)s::integer[], %(seqs)s::bigint[]) AS given (lane, seq)
), locked AS MATERIALIZED (
    SELECT lane FROM onceflow.lane
    WHERE (SELECT ok FROM fence) AND lane IN (SELECT lane FROM given)
    ORDER BY lane
    FOR NO KEY UPDATE
), moved AS (
    UPDATE onceflow.lane
    SET published_seq = given.seq,
        detail = CASE WHEN lane.state = 'stopped:unpublishable' THEN '' ELSE lane.detail END,
        state = CASE WHEN lane.state = 'stopped:unpublishable' THEN 'ok' ELSE lane.state END
    FROM given JOIN locked USING (lane)
    WHERE lane.lane = given.lane AND lane.published_seq <= given.seq AND given.seq <= lane.head_seq
    RETURNING 1
)
SELECT onceflow.ensure((SELECT count(*) FROM moved) = cardinality(%(lanes)s::integer[]),
                       'OF004', 'published_seq would go back or above the head');

-- name: set_lane_state
-- Only from the state that the decision was made on: a newer decision of somebody else stands.
WITH held AS MATERIALIZED (
    SELECT token FROM onceflow.lease WHERE name = %(name)s AND token = %(token)s FOR SHARE
), fence AS MATERIALIZED (
    SELECT onceflow.ensure(EXISTS (SELECT FROM held), 'OF005', 'another relay holds the lease') AS ok
)
UPDATE onceflow.lane SET state = %(state)s, detail = %(detail)s
WHERE lane = %(lane)s AND state = %(from_state)s AND (SELECT ok FROM fence);

-- name: lanes_locked
-- For a decision that must hold until it is written: no sequence is handed out meanwhile.
SELECT lane, head_seq, published_seq, topic_id, state, detail FROM onceflow.lane ORDER BY lane FOR NO KEY UPDATE;

-- name: set_head_state
-- The processor's look at a lane, which holds no lease but the lane's lock.
UPDATE onceflow.lane SET state = %(state)s, detail = %(detail)s WHERE lane = %(lane)s;

-- name: restore_noticed
-- A lane whose topic is ahead was put back, and attempts of operations may have been lost with its outcomes: as in the query
-- deployment_restored.  Counted with the first of its lanes, whoever closes that: the processor, a worker or the relay.
WITH noticed AS (
    UPDATE onceflow.deployment SET restores = restores + 1
    WHERE NOT EXISTS (SELECT FROM onceflow.lane WHERE state IN ('behind', 'recovering'))
    RETURNING id
)
UPDATE onceflow.operation SET looked_up_at = NULL
WHERE looked_up_at IS NOT NULL AND state NOT IN ('succeeded', 'failed', 'canceled') AND EXISTS (SELECT FROM noticed);

-- name: import_outcomes
-- A page of what the topic has behind the head of a lane, under the lease; see the function.
SELECT onceflow.import_outcomes(
    %(name)s, %(token)s, %(lane)s, %(head)s, %(topic_head)s, %(who)s, %(seqs)s::bigint[], %(outcome_ids)s::uuid[],
    %(revisions)s::integer[], %(ce_ids)s::uuid[], %(types)s::text[], %(keys)s::text[], %(bodies)s::bytea[],
    %(headers)s::text[], %(causes)s::text[], %(withhelds)s::text[], %(created)s::text[], %(fact_digests)s::bytea[],
    %(fact_causes)s::text[]);

-- name: withhold
-- Only the row that a stopped lane stands in front of, so that nothing already published is changed.
WITH stopped AS MATERIALIZED (
    SELECT lane, published_seq FROM onceflow.lane
    WHERE lane = %(lane)s AND state = 'stopped:unpublishable'
    FOR NO KEY UPDATE
), held_back AS (
    UPDATE onceflow.outcome SET withheld = %(code)s
    FROM stopped
    WHERE outcome.lane = stopped.lane AND outcome.seq = stopped.published_seq + 1 AND outcome.seq = %(seq)s
    RETURNING outcome.lane
), opened AS (
    UPDATE onceflow.lane SET state = 'ok', detail = ''
    FROM held_back
    WHERE lane.lane = held_back.lane
    RETURNING 1
)
SELECT EXISTS (SELECT FROM stopped) AS stopped, EXISTS (SELECT FROM opened) AS withheld;
