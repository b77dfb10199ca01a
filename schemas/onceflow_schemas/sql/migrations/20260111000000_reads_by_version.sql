-- migrate:up
-- A read has the shape of the version that rendered its event, so each version has a row of its own; and reads that nobody needs
-- any more are deleted by age, since they hold whole objects.
SET LOCAL lock_timeout = '5s';

ALTER TABLE onceflow.object_read_part DROP CONSTRAINT object_read_part_account_mode_kind_object_id_fkey;
ALTER TABLE onceflow.object_read_part DROP CONSTRAINT object_read_part_pkey;
ALTER TABLE onceflow.object_read DROP CONSTRAINT object_read_pkey;
-- Empty: the workers' own version.
UPDATE onceflow.object_read SET api_version = '' WHERE api_version IS NULL;
ALTER TABLE onceflow.object_read ALTER COLUMN api_version SET DEFAULT '', ALTER COLUMN api_version SET NOT NULL;
ALTER TABLE onceflow.object_read ADD PRIMARY KEY (account, mode, kind, object_id, api_version);

ALTER TABLE onceflow.object_read_part ADD COLUMN api_version text NOT NULL DEFAULT '';
UPDATE onceflow.object_read_part AS part SET api_version = read.api_version
FROM onceflow.object_read AS read
WHERE read.account = part.account AND read.mode = part.mode AND read.kind = part.kind AND read.object_id = part.object_id;
ALTER TABLE onceflow.object_read_part ADD PRIMARY KEY (account, mode, kind, object_id, api_version, n);
ALTER TABLE onceflow.object_read_part ADD CONSTRAINT object_read_part_read_fkey
    FOREIGN KEY (account, mode, kind, object_id, api_version) REFERENCES onceflow.object_read ON DELETE CASCADE;

ALTER TABLE onceflow.parked_key ADD COLUMN read_version text;
UPDATE onceflow.parked_key AS waiting SET read_version = read.api_version
FROM onceflow.object_read AS read
WHERE waiting.reason = 'reading' AND read.account = waiting.account AND read.mode = waiting.mode
  AND read.kind = waiting.read_kind AND read.object_id = waiting.read_object;

-- What the deletion of old reads looks through; those that are to be done are not in it.
CREATE INDEX object_read_ended ON onceflow.object_read (read_at) WHERE state <> 'asked';

-- Reads that ended long ago, and that no key waits for.  One that is asked for again meanwhile stays: its row is looked at again
-- under its lock.
CREATE FUNCTION onceflow.retire_reads(
    lease_name text, lease_token bigint, keep_days integer, asked_at timestamptz, rows_max integer,
    OUT deleted bigint, OUT swept boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon timestamptz := onceflow.retention_horizon(keep_days, asked_at);
    book onceflow.retention := onceflow.retention_book('object_read', lease_name, lease_token);
BEGIN
    DELETE FROM onceflow.object_read WHERE ctid = ANY (ARRAY(
        SELECT read.ctid FROM onceflow.object_read AS read
        WHERE read.state <> 'asked' AND read.read_at < horizon
          AND NOT EXISTS (
              SELECT FROM onceflow.parked_key AS waiting
              WHERE waiting.reason = 'reading' AND waiting.account = read.account AND waiting.mode = read.mode
                AND waiting.read_kind = read.kind AND waiting.read_object = read.object_id
                AND waiting.read_version = read.api_version)
        ORDER BY read.read_at LIMIT greatest(rows_max, 1)
        FOR UPDATE OF read SKIP LOCKED));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    swept := deleted < greatest(rows_max, 1);
    UPDATE onceflow.retention AS line
    SET gone_before = greatest(line.gone_before, horizon), deleted = line.deleted + retire_reads.deleted,
        swept_at = CASE WHEN swept THEN clock_timestamp() ELSE line.swept_at END
    WHERE line.name = 'object_read';
END
$$;
REVOKE ALL ON FUNCTION onceflow.retire_reads FROM PUBLIC;

-- migrate:down
DROP FUNCTION onceflow.retire_reads;
DROP INDEX onceflow.object_read_ended;
ALTER TABLE onceflow.parked_key DROP COLUMN read_version;
DELETE FROM onceflow.object_read AS one USING onceflow.object_read AS other
WHERE one.account = other.account AND one.mode = other.mode AND one.kind = other.kind AND one.object_id = other.object_id
  AND one.api_version < other.api_version;
ALTER TABLE onceflow.object_read_part DROP CONSTRAINT object_read_part_read_fkey;
ALTER TABLE onceflow.object_read_part DROP CONSTRAINT object_read_part_pkey;
ALTER TABLE onceflow.object_read_part DROP COLUMN api_version;
ALTER TABLE onceflow.object_read DROP CONSTRAINT object_read_pkey;
ALTER TABLE onceflow.object_read ALTER COLUMN api_version DROP NOT NULL, ALTER COLUMN api_version DROP DEFAULT;
UPDATE onceflow.object_read SET api_version = NULL WHERE api_version = '';
ALTER TABLE onceflow.object_read ADD CONSTRAINT object_read_pkey PRIMARY KEY (account, mode, kind, object_id);
ALTER TABLE onceflow.object_read_part ADD CONSTRAINT object_read_part_pkey PRIMARY KEY (account, mode, kind, object_id, n);
ALTER TABLE onceflow.object_read_part ADD CONSTRAINT object_read_part_account_mode_kind_object_id_fkey
    FOREIGN KEY (account, mode, kind, object_id) REFERENCES onceflow.object_read ON DELETE CASCADE;
