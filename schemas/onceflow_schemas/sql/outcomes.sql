-- What commands show of single outcomes.

-- name: outcome_with_lane
-- By primary key; the value is not read, since it may hold what nobody should see on a screen.
SELECT outcome.type, outcome.key, outcome.cause, outcome.outcome_id, outcome.revision, octet_length(outcome.value) AS bytes,
       outcome.withheld, outcome.created_at, lane.state, lane.detail, lane.published_seq
FROM onceflow.outcome
JOIN onceflow.lane USING (lane)
WHERE outcome.lane = %(lane)s AND outcome.seq = %(seq)s;
