-- migrate:up
-- Durable operations: external effects with an id, their attempts, what a person must decide, and outcomes of application
-- transactions on their way into a lane.  Our SQLSTATE class gains OF006: an operation id that was asked for with other args.
SET LOCAL lock_timeout = '5s';

CREATE TABLE onceflow.operation (
    id uuid PRIMARY KEY,
    -- The order of requests: an order_key's operations run in it, one at a time.
    seq bigint GENERATED ALWAYS AS IDENTITY,
    account text NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    effect text NOT NULL,
    subject text NOT NULL,
    occurrence integer NOT NULL CHECK (occurrence >= 1),
    order_key text,
    -- Which sender takes its calls; only stripe ones share the account's budget.
    kind text NOT NULL CHECK (kind IN ('stripe', 'http', 'mail')),
    -- Canonical JSON of the arguments; the same id with other ones is a conflict.  json keeps the bytes.
    args json NOT NULL,
    args_sha256 bytea NOT NULL,
    cause text NOT NULL,
    state text NOT NULL DEFAULT 'requested' CHECK (state IN
        ('requested', 'sending', 'pending', 'unknown', 'review', 'succeeded', 'failed', 'canceled')),
    -- The frozen calls, in order.  json, not jsonb: the order of parameters is part of what is sent.
    steps json NOT NULL,
    step integer NOT NULL DEFAULT 0 CHECK (step >= 0),
    api_version text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- min(requested_at, Stripe's created of the causing event): the safe window starts here.
    window_from timestamptz NOT NULL,
    -- deployment.restores when it was requested: a later restore may have taken attempt rows with it.
    restores integer NOT NULL DEFAULT 0,
    external_id text,
    lease_owner text,
    lease_until timestamptz,
    fence bigint NOT NULL DEFAULT 0,
    -- When a worker looks at it next: the lease's end while it is leased, infinity when nothing is to be done.
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    looked_up_at timestamptz,
    action_until timestamptz,
    conclusion json,
    cancel_asked boolean NOT NULL DEFAULT false,
    -- A webhook or a person gave a reason to look at the object, whatever the state is.
    look_asked boolean NOT NULL DEFAULT false,
    -- The object that a webhook named; the stored one when NULL.
    look_at text,
    -- Unconfirmed intents of a charge beside the stored one, which are to be cancelled.
    surplus text[] NOT NULL DEFAULT '{}',
    -- The settled states whose callback has run: it runs once for each.
    told text[] NOT NULL DEFAULT '{}',
    last_error text,
    result json,
    settled_at timestamptz,
    UNIQUE (account, mode, effect, subject, occurrence),
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CHECK (state <> 'sending' OR lease_owner IS NOT NULL),
    CHECK ((state IN ('succeeded', 'failed', 'canceled')) = (settled_at IS NOT NULL) OR state = 'review')
);

-- What a worker may take next, by what may be blocked as a whole.  Rows with nothing to do are the many, so they are left out.
CREATE INDEX operation_due ON onceflow.operation (mode, account, kind, next_attempt_at, seq)
    WHERE next_attempt_at < 'infinity';
CREATE INDEX operation_leased ON onceflow.operation (lease_until) WHERE lease_owner IS NOT NULL;
CREATE INDEX operation_order ON onceflow.operation (account, mode, order_key, seq)
    WHERE order_key IS NOT NULL AND state NOT IN ('succeeded', 'failed', 'canceled');
CREATE INDEX operation_state ON onceflow.operation (state, seq) WHERE state NOT IN ('succeeded', 'failed', 'canceled');

CREATE TABLE onceflow.attempt (
    operation_id uuid NOT NULL REFERENCES onceflow.operation (id),
    n integer NOT NULL CHECK (n >= 1),
    step integer NOT NULL,
    -- The step's name and the key it was sent with, for people and for the reconciler.
    name text NOT NULL,
    fence bigint NOT NULL,
    owner text NOT NULL,
    -- Committed before the first byte is sent.
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    -- A word of onceflow_schemas.operations.evidence.Proof; NULL while it is on its way, or for ever when its worker died.
    evidence text,
    detail text NOT NULL DEFAULT '',
    http_status integer,
    request_id text,
    PRIMARY KEY (operation_id, n)
);

-- What only a person may decide, and what was decided.  Rows are only ever added and closed.
CREATE TABLE onceflow.review (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id uuid NOT NULL REFERENCES onceflow.operation (id),
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A failure code, and the facts in plain words.
    code text NOT NULL,
    detail text NOT NULL,
    evidence json NOT NULL DEFAULT '{}',
    decided_at timestamptz,
    decided_by text,
    decision text,
    reason text
);
CREATE UNIQUE INDEX review_open ON onceflow.review (operation_id) WHERE decided_at IS NULL;

-- What a webhook said about an object that carries an operation's id or key: a reason to look, and at what.
CREATE TABLE onceflow.operation_hint (
    operation_id uuid NOT NULL,
    -- account/mode/event id of the event that said it.
    event text NOT NULL,
    object text NOT NULL,
    object_id text NOT NULL,
    status text,
    created timestamptz NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_at timestamptz,
    PRIMARY KEY (operation_id, event)
);
CREATE INDEX operation_hint_open ON onceflow.operation_hint (noted_at) WHERE taken_at IS NULL;

-- One row per account: what all workers together may send, and whether its key works.
CREATE TABLE onceflow.account_budget (
    account text NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    tokens double precision NOT NULL,
    refilled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Nothing is sent before this time: the account's limit was met, or its key was refused (paused_reason says which).
    blocked_until timestamptz,
    paused_reason text,
    refusals integer NOT NULL DEFAULT 0,
    PRIMARY KEY (account, mode)
);

-- Outcomes of application transactions.  A long transaction of an application must never hold a lane, so a duty moves them
-- into lanes in short ones.
CREATE TABLE onceflow.outcome_staged (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outcome_id uuid NOT NULL UNIQUE,
    type text NOT NULL,
    key text NOT NULL,
    value bytea NOT NULL,
    cause text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- migrate:down
DROP TABLE onceflow.outcome_staged;
DROP TABLE onceflow.account_budget;
DROP TABLE onceflow.operation_hint;
DROP TABLE onceflow.review;
DROP TABLE onceflow.attempt;
DROP TABLE onceflow.operation;
