-- migrate:up
-- What Stripe listed in each whole hour: verify asks Stripe again only where this differs from the ledger.
SET LOCAL lock_timeout = '5s';

CREATE TABLE onceflow.reconcile_hour (
    account text NOT NULL,
    mode text NOT NULL,
    hour timestamptz NOT NULL CHECK (date_trunc('hour', hour, 'UTC') = hour),
    -- NULL where there are more than are read in one go: such an hour is always listed again.
    listed bigint CHECK (listed >= 0),
    -- XOR of the first 8 bytes of the SHA-256 of each event id: the same in whatever order they come.
    id_hash bigint NOT NULL,
    read_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account, mode, hour)
);

-- migrate:down
DROP TABLE onceflow.reconcile_hour;
