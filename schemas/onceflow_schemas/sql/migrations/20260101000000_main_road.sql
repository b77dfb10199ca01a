-- migrate:up
-- The tables of the main road.  Outsiders may read them; only onceflow writes them.
SET LOCAL lock_timeout = '5s';

CREATE SCHEMA IF NOT EXISTS onceflow;

-- A check on the server that raises, so that a pipeline needs no fetch between its statements.
-- Our SQLSTATE class is OF: OF001 fence, OF002 guard, OF003 fact, OF004 lane, OF005 lease.
CREATE FUNCTION onceflow.ensure(ok boolean, sqlstate_code text, message text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF ok IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = sqlstate_code, MESSAGE = message;
    END IF;
    RETURN true;
END
$$;

CREATE TABLE onceflow.deployment (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id text NOT NULL,
    accounts text[] NOT NULL CHECK (cardinality(accounts) >= 1),
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    system_id text NOT NULL,
    timeline bigint NOT NULL,
    restores integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE onceflow.inbox (
    account text NOT NULL,
    mode text NOT NULL,
    event_id text NOT NULL,
    state text NOT NULL CHECK (state IN ('processed', 'ignored', 'parked', 'quarantined')),
    type text NOT NULL,
    object_id text NOT NULL,
    api_version text,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    body_sha256 bytea NOT NULL,
    event_created timestamptz,
    received_at timestamptz NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    handler_set text NOT NULL,
    PRIMARY KEY (account, mode, event_id)
);

CREATE TABLE onceflow.progress (
    cluster_id text NOT NULL,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    topic text NOT NULL,
    next_offset bigint NOT NULL CHECK (next_offset >= 0),
    -- "<offset> <timestamp> <sha256>" of the record before next_offset; NULL before the first one.
    fingerprint text,
    epoch bigint NOT NULL,
    owner text NOT NULL,
    clean boolean NOT NULL,
    batch_end bigint NOT NULL,
    -- A failure code while the partition stands still and needs a person; NULL while it runs.
    stopped text,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (cluster_id, topic_id, partition)
);

CREATE TABLE onceflow.lane (
    lane integer PRIMARY KEY CHECK (lane >= 0),
    head_seq bigint NOT NULL DEFAULT 0 CHECK (head_seq >= 0),
    published_seq bigint NOT NULL DEFAULT 0 CHECK (published_seq >= 0 AND published_seq <= head_seq),
    topic_id text NOT NULL,
    state text NOT NULL DEFAULT 'ok' CHECK (state ~ '^(ok|behind|recovering|stopped:[a-z_]+)$'),
    detail text NOT NULL DEFAULT ''
);

CREATE TABLE onceflow.outcome (
    lane integer NOT NULL REFERENCES onceflow.lane (lane),
    seq bigint NOT NULL CHECK (seq >= 1),
    outcome_id uuid NOT NULL,
    revision integer NOT NULL DEFAULT 1 CHECK (revision >= 1),
    ce_id uuid NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    value bytea NOT NULL,
    headers json NOT NULL DEFAULT '{}',
    cause text NOT NULL,
    -- A failure code when the outcome must not be published; a placeholder goes out in its place.
    withheld text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane, seq),
    UNIQUE (outcome_id, revision)
);

CREATE TABLE onceflow.fact (
    namespace text NOT NULL,
    key text NOT NULL,
    cause text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key)
);

-- A row that must be gone at COMMIT: its deferred reference points at a row that cannot exist, and only the
-- tail of a batch deletes it.  A handler that commits by itself thereby fails with 23503.
CREATE TABLE onceflow.batch_guard (
    id bigint PRIMARY KEY CHECK (id > 0),
    must_be_gone bigint NOT NULL CHECK (must_be_gone < 0)
        REFERENCES onceflow.batch_guard (id) DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE onceflow.quarantine (
    topic_id text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    topic text NOT NULL,
    account text,
    mode text,
    event_id text,
    code text NOT NULL,
    detail text NOT NULL,
    handler text,
    traceback text,
    key bytea,
    value bytea,
    -- [[name, base64 or null], ...] in the record's order; json, since jsonb refuses NUL in names.
    headers json NOT NULL,
    record_time timestamptz,
    quarantined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic_id, partition, "offset")
);

CREATE INDEX quarantine_identity ON onceflow.quarantine (account, mode, event_id);

CREATE TABLE onceflow.lease (
    name text PRIMARY KEY,
    owner text NOT NULL,
    token bigint NOT NULL,
    lease_until timestamptz NOT NULL
);

-- migrate:down
DROP SCHEMA onceflow CASCADE;
