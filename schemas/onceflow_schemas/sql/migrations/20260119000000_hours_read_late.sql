-- migrate:up
-- When, by Stripe's clock, an hour was read: one that was read soon after its end may lack what became visible late.
SET LOCAL lock_timeout = '5s';

ALTER TABLE onceflow.reconcile_hour ADD COLUMN listed_at timestamptz;
UPDATE onceflow.reconcile_hour SET listed_at = read_at;
ALTER TABLE onceflow.reconcile_hour ALTER COLUMN listed_at SET NOT NULL;
-- The reconciler looks at what was done since its last look; an index of ranges costs an insert nothing.
CREATE INDEX inbox_processed ON onceflow.inbox USING brin (processed_at);

-- migrate:down
DROP INDEX onceflow.inbox_processed;
ALTER TABLE onceflow.reconcile_hour DROP COLUMN listed_at;
