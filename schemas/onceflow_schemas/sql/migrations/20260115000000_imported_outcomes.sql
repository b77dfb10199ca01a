-- migrate:up
-- After a restore of the database the outcome topic may know more than it: those outcomes come back from the topic.
SET LOCAL lock_timeout = '5s';

-- When the row came back from the topic; null for what was decided here.
ALTER TABLE onceflow.outcome ADD COLUMN imported_at timestamptz;
-- What a batch compares its outcomes with before they are counted; empty where nothing was ever put back.
CREATE INDEX outcome_imported ON onceflow.outcome (outcome_id, revision) WHERE imported_at IS NOT NULL;

-- A handler that ran again decided otherwise than the topic says; the topic's outcome stands.
CREATE TABLE onceflow.outcome_contradiction (
    lane integer NOT NULL,
    seq bigint NOT NULL,
    value bytea NOT NULL,
    cause text NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane, seq),
    FOREIGN KEY (lane, seq) REFERENCES onceflow.outcome ON DELETE CASCADE
);

-- Facts that imported outcomes' causes had claimed first: who claims one for another cause is told that it is taken, whether or not
-- its own cause has come again.  Empty where nothing was ever put back.
CREATE TABLE onceflow.imported_fact (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 16),
    cause text NOT NULL
);

-- What an application's cause claimed, told by its outcomes when they get their lane.
CREATE INDEX fact_of_application ON onceflow.fact (cause, created_at) WHERE cause LIKE 'app:%';

-- As onceflow_schemas.told_facts makes it: keys of facts may be personal, and do not travel.
CREATE FUNCTION onceflow.fact_digest(namespace text, key text) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.substring(
        pg_catalog.sha256(pg_catalog.convert_to(namespace, 'UTF8') || '\x00'::bytea || pg_catalog.convert_to(key, 'UTF8')), 1, 16)
$$;
REVOKE ALL ON FUNCTION onceflow.fact_digest FROM PUBLIC;

-- Append a page of the topic's outcomes behind the head, under the relay's lease.  Only to a lane that hands out nothing, and only
-- behind the very head that the page was read for; false when the lane changed meanwhile.  The first page is audited.
CREATE FUNCTION onceflow.import_outcomes(
    lease_name text, lease_token bigint, in_lane integer, head_before bigint, topic_head bigint, who text,
    seqs bigint[], outcome_ids uuid[], revisions integer[], ce_ids uuid[], types text[], keys text[], bodies bytea[],
    own_headers text[], causes text[], withhelds text[], created text[], fact_digests bytea[], fact_causes text[]
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row onceflow.lane;
    told text := 'outcomes up to ' || topic_head || ' are being imported from the topic';
BEGIN
    PERFORM FROM onceflow.lease WHERE name = lease_name AND token = lease_token FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'OF005', MESSAGE = 'another relay holds the lease';
    END IF;
    SELECT * INTO row FROM onceflow.lane WHERE lane.lane = in_lane FOR NO KEY UPDATE;
    IF row.head_seq IS DISTINCT FROM head_before OR row.state NOT IN ('behind', 'recovering', 'stopped:not_importable') THEN
        RETURN false;
    END IF;
    INSERT INTO onceflow.outcome (lane, seq, outcome_id, revision, ce_id, type, key, value, headers, cause, withheld, created_at,
                                  imported_at)
    SELECT in_lane, item.seq, item.outcome_id, item.revision, item.ce_id, item.type, item.key, item.value, item.headers::json,
           item.cause, item.withheld, item.created_at::timestamptz, clock_timestamp()
    FROM unnest(seqs, outcome_ids, revisions, ce_ids, types, keys, bodies, own_headers, causes, withhelds, created)
         AS item (seq, outcome_id, revision, ce_id, type, key, value, headers, cause, withheld, created_at);
    INSERT INTO onceflow.imported_fact (digest, cause)
    SELECT fact.digest, fact.cause FROM unnest(fact_digests, fact_causes) AS fact (digest, cause)
    ON CONFLICT DO NOTHING;
    UPDATE onceflow.lane SET head_seq = head_before + cardinality(seqs), state = 'recovering', detail = told
    WHERE lane.lane = in_lane;
    IF row.state <> 'recovering' THEN
        INSERT INTO onceflow.audit (who, action, subject, before, after, reason)
        VALUES (import_outcomes.who, 'lane_import', 'lane ' || in_lane,
                json_build_object('head', head_before, 'published', row.published_seq, 'state', row.state),
                json_build_object('head', topic_head, 'state', 'recovering'),
                'the topic was ahead of the database');
    END IF;
    RETURN true;
END
$$;
REVOKE ALL ON FUNCTION onceflow.import_outcomes FROM PUBLIC;

-- migrate:down
DROP FUNCTION onceflow.import_outcomes;
DROP FUNCTION onceflow.fact_digest;
DROP INDEX onceflow.fact_of_application;
DROP TABLE onceflow.imported_fact;
DROP TABLE onceflow.outcome_contradiction;
DROP INDEX onceflow.outcome_imported;
ALTER TABLE onceflow.outcome DROP COLUMN imported_at;
