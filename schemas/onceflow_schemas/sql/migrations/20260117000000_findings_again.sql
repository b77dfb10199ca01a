-- migrate:up
-- Hours that are read again until all of them is done, and refunds that failed after they had succeeded.
SET LOCAL lock_timeout = '5s';

-- How many events of the hour had no marker when it was read: they waited in the topic.
ALTER TABLE onceflow.reconcile_hour ADD COLUMN waiting bigint NOT NULL DEFAULT 0;
CREATE INDEX reconcile_hour_waiting ON onceflow.reconcile_hour (account, mode, read_at) WHERE waiting > 0;
CREATE INDEX operation_failed_later ON onceflow.operation (settled_at) WHERE state = 'failed' AND 'succeeded' = ANY (told);

-- migrate:down
DROP INDEX onceflow.operation_failed_later;
DROP INDEX onceflow.reconcile_hour_waiting;
ALTER TABLE onceflow.reconcile_hour DROP COLUMN waiting;
