-- migrate:up
-- Dead letters: quarantined records are also published to a topic of the operator's choice, once each.
SET LOCAL lock_timeout = '5s';

-- A code where the topic does not take the record: it is not tried again.
ALTER TABLE onceflow.quarantine ADD COLUMN dead_letter_code text;
CREATE INDEX quarantine_not_dead_lettered ON onceflow.quarantine (quarantined_at, topic_id, partition, "offset")
    WHERE dead_lettered_at IS NULL AND decision IS DISTINCT FROM 'retried';

-- migrate:down
DROP INDEX onceflow.quarantine_not_dead_lettered;
ALTER TABLE onceflow.quarantine DROP COLUMN dead_letter_code;
