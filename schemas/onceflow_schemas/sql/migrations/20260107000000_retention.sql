-- migrate:up
-- What is deleted by age, and how far that has come.  Nobody may DELETE from the ledger; the functions below do it with the
-- rights of their owner, and find out by themselves what is old enough.  Our SQLSTATE class gains OF008: a deletion that was
-- asked for wrongly.  The inbox gets no index: it is walked page by page (see docs/decisions), so the hot path pays nothing.
SET LOCAL lock_timeout = '5s';

CREATE TABLE onceflow.retention (
    -- inbox, quarantine, or outcome/<lane>.
    name text PRIMARY KEY,
    -- Rows older than this may be gone.  It never goes back, also when a setting is raised later.
    gone_before timestamptz NOT NULL DEFAULT '-infinity',
    -- Where the next slice begins: a page of the inbox, a sequence of a lane.
    position bigint NOT NULL DEFAULT 0 CHECK (position >= 0),
    deleted bigint NOT NULL DEFAULT 0 CHECK (deleted >= 0),
    -- The oldest row that the last whole sweep left, and the one that is under way.
    oldest timestamptz,
    oldest_so_far timestamptz,
    swept_at timestamptz
);

-- What the deletion of decided records looks through; undecided ones are not in it.
CREATE INDEX quarantine_decided ON onceflow.quarantine (decided_at) WHERE decided_at IS NOT NULL;

-- The time before which rows are old enough.  Two clocks must agree, so that one that has jumped deletes nothing; and nothing is
-- old enough that is younger than Stripe's 30 days and a margin, whatever the caller asks for.
CREATE FUNCTION onceflow.retention_horizon(keep_days integer, asked_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_here timestamptz := clock_timestamp();
BEGIN
    IF keep_days IS NULL OR keep_days < 32 THEN
        RAISE EXCEPTION USING ERRCODE = 'OF008', MESSAGE = 'rows are kept for at least 32 days';
    END IF;
    IF asked_at IS NULL OR abs(extract(epoch FROM asked_at - now_here)) > 3600 THEN
        RAISE EXCEPTION USING ERRCODE = 'OF008', MESSAGE = 'the clocks of database and caller differ by more than an hour';
    END IF;
    RETURN least(now_here, asked_at) - make_interval(hours => keep_days * 24);
END
$$;

-- The book of one table under the lease: whoever lost the lease deletes nothing, and two callers wait for each other.  The lease
-- is not locked against its renewal, or publishing would stand for as long as a slice takes; what a caller deletes that loses it
-- meanwhile may be deleted by anybody.
CREATE FUNCTION onceflow.retention_book(of_name text, lease_name text, lease_token bigint) RETURNS onceflow.retention
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    book onceflow.retention;
BEGIN
    PERFORM FROM onceflow.lease WHERE name = lease_name AND token = lease_token FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'OF005', MESSAGE = 'another relay holds the lease';
    END IF;
    INSERT INTO onceflow.retention (name) VALUES (of_name) ON CONFLICT DO NOTHING;
    SELECT * INTO STRICT book FROM onceflow.retention WHERE name = of_name FOR UPDATE;
    RETURN book;
END
$$;

-- One slice of the inbox.  Two times must be old: received_at is the bridge's clock, processed_at the database's.  What waits for
-- a person or for its turn stays, and so does a quarantined event for as long as its record is kept.
CREATE FUNCTION onceflow.retire_markers(
    lease_name text, lease_token bigint, keep_days integer, asked_at timestamptz, pages_max integer,
    OUT deleted bigint, OUT swept boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon timestamptz := onceflow.retention_horizon(keep_days, asked_at);
    book onceflow.retention := onceflow.retention_book('inbox', lease_name, lease_token);
    pages bigint := pg_relation_size('onceflow.inbox') / current_setting('block_size')::bigint;
    first_tid tid := format('(%s,0)', book.position)::tid;
    end_page bigint := book.position + greatest(pages_max, 1);
    end_tid tid := format('(%s,0)', end_page)::tid;
    kept timestamptz;
BEGIN
    DELETE FROM onceflow.inbox WHERE ctid = ANY (ARRAY(
        SELECT marker.ctid FROM onceflow.inbox AS marker
        WHERE marker.ctid >= first_tid AND marker.ctid < end_tid
          AND marker.received_at < horizon AND marker.processed_at < horizon
          AND (marker.state IN ('processed', 'ignored')
               OR marker.state = 'quarantined' AND NOT EXISTS (
                   SELECT FROM onceflow.quarantine AS record
                   WHERE record.account = marker.account AND record.mode = marker.mode
                     AND record.event_id = marker.event_id))
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    SELECT least(book.oldest_so_far, min(marker.received_at)) INTO kept
    FROM onceflow.inbox AS marker WHERE marker.ctid >= first_tid AND marker.ctid < end_tid;
    swept := end_page >= pages;
    UPDATE onceflow.retention AS line
    SET gone_before = greatest(line.gone_before, horizon), deleted = line.deleted + retire_markers.deleted,
        position = CASE WHEN swept THEN 0 ELSE end_page END,
        oldest = CASE WHEN swept THEN kept ELSE line.oldest END,
        oldest_so_far = CASE WHEN swept THEN NULL ELSE kept END,
        swept_at = CASE WHEN swept THEN clock_timestamp() ELSE line.swept_at END
    WHERE line.name = 'inbox';
END
$$;

-- One slice of a lane: its oldest rows, never the published one that the relay's cursor names, nor any behind it, and nothing of a
-- lane that stands still, whose rows a person may need.
CREATE FUNCTION onceflow.retire_outcomes(
    lease_name text, lease_token bigint, keep_days integer, asked_at timestamptz, of_lane integer, rows_max integer,
    OUT deleted bigint, OUT swept boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon timestamptz := onceflow.retention_horizon(keep_days, asked_at);
    line_name text := 'outcome/' || of_lane;
    book onceflow.retention := onceflow.retention_book(line_name, lease_name, lease_token);
    published bigint := (SELECT lane.published_seq FROM onceflow.lane WHERE lane.lane = of_lane AND lane.state = 'ok');
    last_seq bigint := least(published - 1, book.position + greatest(rows_max, 1));
    young_seq bigint;
    kept timestamptz;
BEGIN
    IF published IS NULL THEN
        last_seq := book.position;
    END IF;
    SELECT min(outcome.seq) INTO young_seq FROM onceflow.outcome
    WHERE outcome.lane = of_lane AND outcome.seq > book.position AND outcome.seq <= last_seq AND outcome.created_at >= horizon;
    last_seq := greatest(book.position, least(last_seq, young_seq - 1));
    DELETE FROM onceflow.outcome
    WHERE outcome.lane = of_lane AND outcome.seq > book.position AND outcome.seq <= last_seq;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    swept := published IS NULL OR young_seq IS NOT NULL OR last_seq >= published - 1;
    SELECT outcome.created_at INTO kept FROM onceflow.outcome
    WHERE outcome.lane = of_lane AND outcome.seq > last_seq ORDER BY outcome.seq LIMIT 1;
    UPDATE onceflow.retention AS line
    SET gone_before = greatest(line.gone_before, horizon), deleted = line.deleted + retire_outcomes.deleted,
        position = last_seq, oldest = kept,
        swept_at = CASE WHEN swept THEN clock_timestamp() ELSE line.swept_at END
    WHERE line.name = line_name;
END
$$;

-- Records about which a person decided long ago.  One without a decision stays for ever.
CREATE FUNCTION onceflow.retire_quarantine(
    lease_name text, lease_token bigint, keep_days integer, asked_at timestamptz, rows_max integer,
    OUT deleted bigint, OUT swept boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon timestamptz := onceflow.retention_horizon(keep_days, asked_at);
    book onceflow.retention := onceflow.retention_book('quarantine', lease_name, lease_token);
BEGIN
    DELETE FROM onceflow.quarantine WHERE ctid = ANY (ARRAY(
        SELECT record.ctid FROM onceflow.quarantine AS record
        WHERE record.decided_at < horizon AND record.quarantined_at < horizon AND record.decision IS NOT NULL
          AND record.retry_asked_at IS NULL
        ORDER BY record.decided_at LIMIT greatest(rows_max, 1)
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    swept := deleted < greatest(rows_max, 1);
    UPDATE onceflow.retention AS line
    SET gone_before = greatest(line.gone_before, horizon), deleted = line.deleted + retire_quarantine.deleted,
        swept_at = CASE WHEN swept THEN clock_timestamp() ELSE line.swept_at END
    WHERE line.name = 'quarantine';
END
$$;

REVOKE ALL ON FUNCTION onceflow.retention_horizon, onceflow.retention_book, onceflow.retire_markers, onceflow.retire_outcomes,
    onceflow.retire_quarantine FROM PUBLIC;

-- migrate:down
DROP FUNCTION onceflow.retire_quarantine;
DROP FUNCTION onceflow.retire_outcomes;
DROP FUNCTION onceflow.retire_markers;
DROP FUNCTION onceflow.retention_book;
DROP FUNCTION onceflow.retention_horizon;
DROP INDEX onceflow.quarantine_decided;
DROP TABLE onceflow.retention;
