-- migrate:up
-- What the reconciler wrote down and nobody needs any more is deleted by age, under its lease, as the relay deletes markers.
SET LOCAL lock_timeout = '5s';

-- What the deletion of healed findings looks through; open and accepted ones are not in it.
CREATE INDEX finding_healed ON onceflow.finding (healed_at) WHERE state = 'healed';

-- Findings that were healed long ago, and accepted ones of which what they explain is deleted itself: both with what was done about
-- them.  The caller names kinds whose healed findings say something of the past for ever, and kinds whose accepted ones are about one
-- event, record or outcome, which goes with its rows.
CREATE FUNCTION onceflow.retire_findings(
    lease_name text, lease_token bigint, keep_days integer, asked_at timestamptz, kinds_kept text[], kinds_passing text[],
    rows_max integer, OUT deleted bigint, OUT swept boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon timestamptz := onceflow.retention_horizon(keep_days, asked_at);
    book onceflow.retention := onceflow.retention_book('finding', lease_name, lease_token);
    -- Before this, all that a decision may explain is gone: of inbox and lanes the one that has come least far.
    passed timestamptz := (
        SELECT least(horizon, min(line.gone_before)) FROM onceflow.retention AS line
        WHERE line.name = 'inbox' OR line.name LIKE 'outcome/%'
        HAVING bool_or(line.name = 'inbox') AND bool_or(line.name LIKE 'outcome/%'));
    gone bigint[] := ARRAY(
        SELECT finding.id FROM onceflow.finding
        WHERE finding.state = 'healed' AND finding.healed_at < horizon AND finding.last_seen_at < horizon
          AND finding.kind <> ALL (kinds_kept)
        ORDER BY finding.healed_at LIMIT greatest(rows_max, 1)
        FOR UPDATE SKIP LOCKED);
BEGIN
    gone := gone || ARRAY(
        SELECT finding.id FROM onceflow.finding
        WHERE finding.state = 'accepted' AND finding.kind = ANY (kinds_passing)
          AND finding.decided_at < passed AND finding.last_seen_at < passed
        ORDER BY finding.id LIMIT greatest(rows_max, 1) - cardinality(gone)
        FOR UPDATE SKIP LOCKED);
    DELETE FROM onceflow.remedy WHERE remedy.finding_id = ANY (gone);
    DELETE FROM onceflow.finding WHERE finding.id = ANY (gone);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    swept := deleted < greatest(rows_max, 1);
    UPDATE onceflow.retention AS line
    SET gone_before = greatest(line.gone_before, horizon), deleted = line.deleted + retire_findings.deleted,
        swept_at = CASE WHEN swept THEN clock_timestamp() ELSE line.swept_at END
    WHERE line.name = 'finding';
END
$$;

-- Hours of which markers may be deleted: no proof goes behind that.  While markers are kept for ever, so are hours.  The last hour of
-- an account stays, from which the next one follows; so do notes of losses for as long as the losses are looked for.
CREATE FUNCTION onceflow.retire_hours(
    lease_name text, lease_token bigint, asked_at timestamptz, rows_max integer, OUT deleted bigint, OUT swept boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon timestamptz := onceflow.retention_horizon(32, asked_at);
    book onceflow.retention := onceflow.retention_book('reconcile_hour', lease_name, lease_token);
    proved timestamptz := (
        SELECT date_trunc('hour', least(horizon, line.gone_before), 'UTC') FROM onceflow.retention AS line
        WHERE line.name = 'inbox' AND line.gone_before > '-infinity');
BEGIN
    DELETE FROM onceflow.reconcile_hour WHERE ctid = ANY (ARRAY(
        SELECT old.ctid FROM onceflow.reconcile_hour AS old
        WHERE old.hour < proved
          AND old.hour < (SELECT max(latest.hour) FROM onceflow.reconcile_hour AS latest
                          WHERE latest.account = old.account AND latest.mode = old.mode)
        LIMIT greatest(rows_max, 1)
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    swept := deleted < greatest(rows_max, 1);
    IF swept THEN
        DELETE FROM onceflow.reconcile_cursor WHERE source LIKE 'loss %' AND done_until < horizon;
    END IF;
    UPDATE onceflow.retention AS line
    SET gone_before = greatest(line.gone_before, proved), deleted = line.deleted + retire_hours.deleted,
        swept_at = CASE WHEN swept THEN clock_timestamp() ELSE line.swept_at END
    WHERE line.name = 'reconcile_hour';
END
$$;

REVOKE ALL ON FUNCTION onceflow.retire_findings, onceflow.retire_hours FROM PUBLIC;

-- migrate:down
DROP FUNCTION onceflow.retire_hours;
DROP FUNCTION onceflow.retire_findings;
DROP INDEX onceflow.finding_healed;
