-- migrate:up
-- What is recent is found without reading whole tables: the reconciler's look at ledgers goes back some hours, every hour.  Rows come
-- nearly in the order of their times, so that an index of ranges does, which costs an insert nothing.
SET LOCAL lock_timeout = '5s';

CREATE INDEX inbox_times ON onceflow.inbox USING brin (coalesce(event_created, received_at));
CREATE INDEX operation_requested ON onceflow.operation USING brin (requested_at);

-- migrate:down
DROP INDEX onceflow.operation_requested;
DROP INDEX onceflow.inbox_times;
