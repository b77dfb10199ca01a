-- migrate:up
-- What had to be looked at at Stripe before an event could be handled, and what was found there.
SET LOCAL lock_timeout = '5s';

-- One row for each thing, however many events wait for it: a read serves all that asked before it began.
CREATE TABLE onceflow.object_read (
    account text NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    -- object: the object as it is now | thin_event: the event and its object | lines: all lines of an invoice.
    kind text NOT NULL CHECK (kind IN ('object', 'thin_event', 'lines')),
    -- The id of the object; of a thin event its own.
    object_id text NOT NULL,
    first_path text NOT NULL,
    -- What the next request asks for: a read may take several.
    path text NOT NULL,
    -- The version that rendered the event, so that what is read has its shape; NULL: the workers' own.
    api_version text,
    state text NOT NULL DEFAULT 'asked' CHECK (state IN ('asked', 'read', 'failed')),
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When somebody reads next: the lease's end while it is leased, infinity when nothing is to be done.
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_owner text,
    lease_until timestamptz,
    fence bigint NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    -- Of the read in hand: the moment before its first request, and what is in object_read_part already.
    begun_at timestamptz,
    parts integer NOT NULL DEFAULT 0 CHECK (parts >= 0),
    part_bytes bigint NOT NULL DEFAULT 0,
    -- Of the last read that ended: the moment before it began, here and by Stripe's clock, and what it found.
    read_at timestamptz,
    stripe_at timestamptz,
    result text CHECK (result IN ('whole', 'gone', 'incomplete', 'failed')),
    body bytea,
    http_status integer,
    code text,
    detail text NOT NULL DEFAULT '',
    PRIMARY KEY (account, mode, kind, object_id),
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CHECK ((result IS NULL) = (read_at IS NULL)),
    CHECK (state = 'asked' OR result IS NOT NULL),
    CHECK (body IS NOT NULL OR result IS DISTINCT FROM 'whole')
);

CREATE INDEX object_read_due ON onceflow.object_read (mode, account, due_at) WHERE state = 'asked';

-- The answers of a read that takes several requests, until it is whole.
CREATE TABLE onceflow.object_read_part (
    account text NOT NULL,
    mode text NOT NULL,
    kind text NOT NULL,
    object_id text NOT NULL,
    n integer NOT NULL CHECK (n >= 1),
    stripe_at timestamptz,
    body bytea NOT NULL,
    PRIMARY KEY (account, mode, kind, object_id, n),
    FOREIGN KEY (account, mode, kind, object_id) REFERENCES onceflow.object_read ON DELETE CASCADE
);

-- What a key with reason "reading" waits for.
ALTER TABLE onceflow.parked_key ADD COLUMN read_kind text;
ALTER TABLE onceflow.parked_key ADD COLUMN read_object text;
CREATE INDEX parked_key_reading ON onceflow.parked_key (read_object) WHERE reason = 'reading';

-- migrate:down
DROP INDEX onceflow.parked_key_reading;
ALTER TABLE onceflow.parked_key DROP COLUMN read_object, DROP COLUMN read_kind;
DROP TABLE onceflow.object_read_part;
DROP TABLE onceflow.object_read;
