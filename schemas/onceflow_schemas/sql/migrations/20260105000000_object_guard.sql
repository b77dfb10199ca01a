-- migrate:up
-- What has been applied of each object, so that an older event never lowers newer state; which events said a fact again; and
-- how much of a running total has been booked.
SET LOCAL lock_timeout = '5s';

-- All but the key is NULL until an event of the object has gone well: the row is there first, to be locked.
CREATE TABLE onceflow.object_guard (
    account text NOT NULL,
    mode text NOT NULL,
    object_id text NOT NULL,
    kind text,
    created timestamptz,
    -- Status, measure, event type; it decides within one second.
    rank bigint[],
    tombstone boolean NOT NULL DEFAULT false,
    digest bytea,
    event_id text,
    type text,
    status text,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account, mode, object_id),
    CHECK (num_nulls(kind, created, rank, digest, event_id, type) IN (0, 6))
);
-- Rows are rewritten with each event of their object: room for the new version beside the old one.
ALTER TABLE onceflow.object_guard SET (fillfactor = 80);

-- What the guard said of the event: true when it told an older state than was applied, false when it told the applied
-- state again; NULL for any other.  A rerun needs it.
ALTER TABLE onceflow.inbox ADD COLUMN is_stale boolean;

-- Events that claimed a fact which another had claimed before.
CREATE TABLE onceflow.fact_claim (
    namespace text NOT NULL,
    key text NOT NULL,
    cause text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key, cause)
);

-- The highest total that was ever told, all of which is booked.
CREATE TABLE onceflow.booked (
    namespace text NOT NULL,
    key text NOT NULL,
    total bigint NOT NULL CHECK (total >= 0),
    -- What the last booking added.
    difference bigint NOT NULL CHECK (difference >= 0 AND difference <= total),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key)
);

-- What each event added: the differences of a key sum up to its total.
CREATE TABLE onceflow.booking (
    namespace text NOT NULL,
    key text NOT NULL,
    cause text NOT NULL,
    difference bigint NOT NULL CHECK (difference > 0),
    booked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key, cause),
    FOREIGN KEY (namespace, key) REFERENCES onceflow.booked
);

-- migrate:down
DROP TABLE onceflow.booking;
DROP TABLE onceflow.booked;
DROP TABLE onceflow.fact_claim;
ALTER TABLE onceflow.inbox DROP COLUMN is_stale;
DROP TABLE onceflow.object_guard;
