-- migrate:up
-- Findings that are healed stay in their table: each look goes past them, to those that are not, and to those of the last day.
SET LOCAL lock_timeout = '5s';

CREATE INDEX finding_not_healed ON onceflow.finding (kind) WHERE state <> 'healed';
CREATE INDEX finding_missed ON onceflow.finding (account, mode, last_seen_at) WHERE kind = 'missed_event';

-- migrate:down
DROP INDEX onceflow.finding_missed;
DROP INDEX onceflow.finding_not_healed;
