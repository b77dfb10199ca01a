-- migrate:up
-- Replays that a person has begun: what was asked for, how far it is, and what came of it.
SET LOCAL lock_timeout = '5s';

CREATE TABLE onceflow.replay_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- replay runs what is missing, rerun runs again what was processed.
    kind text NOT NULL CHECK (kind IN ('replay', 'rerun')),
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done')),
    cluster_id text NOT NULL,
    topic_id text NOT NULL,
    topic text NOT NULL,
    filters json NOT NULL,
    counts json NOT NULL,
    -- Raised by whoever goes on with it; a process with an older one writes nothing.
    epoch bigint NOT NULL DEFAULT 1,
    owner text NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    CHECK ((state = 'done') = (ended_at IS NOT NULL))
);

CREATE TABLE onceflow.replay_stretch (
    run_id bigint NOT NULL REFERENCES onceflow.replay_run (id),
    partition integer NOT NULL,
    from_offset bigint NOT NULL,
    -- Moved in the transaction of what it stands for.
    next_offset bigint NOT NULL,
    to_offset bigint NOT NULL,
    PRIMARY KEY (run_id, partition),
    CHECK (from_offset >= 0 AND from_offset <= next_offset AND next_offset <= to_offset)
);

-- Finds what an event gave at the time when it was processed.  Block ranges cost an insert next to nothing.
CREATE INDEX outcome_created ON onceflow.outcome USING brin (created_at);

-- migrate:down
DROP INDEX onceflow.outcome_created;
DROP TABLE onceflow.replay_stretch;
DROP TABLE onceflow.replay_run;
