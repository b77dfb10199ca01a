-- migrate:up
-- What the reconciler has found, what was done about it, and how far it has read.
SET LOCAL lock_timeout = '5s';

-- One drift.  It is known by its kind and what it is about, so that whoever finds it again finds this row.
CREATE TABLE onceflow.finding (
    kind text NOT NULL,
    subject text NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    account text,
    mode text,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'healed', 'accepted', 'recurring')),
    facts jsonb NOT NULL DEFAULT '{}',
    -- Money at stake, in the currency's smallest unit; NULL where there is none, or nobody knows.
    amount bigint,
    currency text,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    times integer NOT NULL DEFAULT 1,
    healed_at timestamptz,
    decided_at timestamptz,
    decided_by text,
    reason text,
    PRIMARY KEY (kind, subject)
);
CREATE UNIQUE INDEX finding_id ON onceflow.finding (id);
CREATE INDEX finding_open ON onceflow.finding (kind, id) WHERE state IN ('open', 'recurring');

-- What was done about findings.
CREATE TABLE onceflow.remedy (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    finding_id bigint NOT NULL REFERENCES onceflow.finding (id),
    action text NOT NULL,
    who text NOT NULL,
    result text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX remedy_of ON onceflow.remedy (finding_id);

-- How far a list of Stripe was handed over.
CREATE TABLE onceflow.reconcile_cursor (
    account text NOT NULL,
    mode text NOT NULL,
    source text NOT NULL,
    done_until timestamptz NOT NULL,
    moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account, mode, source)
);

CREATE INDEX quarantine_undecided ON onceflow.quarantine (quarantined_at) WHERE decision IS NULL;

-- migrate:down
DROP INDEX onceflow.quarantine_undecided;
DROP TABLE onceflow.reconcile_cursor;
DROP TABLE onceflow.remedy;
DROP TABLE onceflow.finding;
