-- migrate:up
-- What careful mode and operators' decisions need: unclean ends in a row, tries counted before them, and an audit.
SET LOCAL lock_timeout = '5s';

-- Take-overs in a row that found the partition unclean, with nothing committed in between.
ALTER TABLE onceflow.progress ADD COLUMN unclean_ends integer NOT NULL DEFAULT 0 CHECK (unclean_ends >= 0);

-- Why the partition waits now, for a person to read; it goes on by itself.  NULL while it runs.
ALTER TABLE onceflow.progress ADD COLUMN waiting text;

-- A record that is tried with care: the count is committed before each try, so that it survives the process.
CREATE TABLE onceflow.suspect (
    topic_id text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    tries integer NOT NULL CHECK (tries >= 1),
    first_tried_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic_id, partition, "offset")
);

-- What a person decided: rows are only ever added.
CREATE TABLE onceflow.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    who text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    before json NOT NULL,
    after json NOT NULL,
    reason text NOT NULL
);

-- migrate:down
DROP TABLE onceflow.audit;
DROP TABLE onceflow.suspect;
ALTER TABLE onceflow.progress DROP COLUMN waiting, DROP COLUMN unclean_ends;
