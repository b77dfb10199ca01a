-- migrate:up
-- Handlers may say that an event is not their application's.
SET LOCAL lock_timeout = '5s';

-- The handlers that said so, each with its reason; the event is processed all the same.
ALTER TABLE onceflow.inbox ADD COLUMN ignored_because text;

-- migrate:down
ALTER TABLE onceflow.inbox DROP COLUMN ignored_because;
