-- The migrations runner, and the check by which every service refuses a database of another version.

-- name: runner_lock
-- One runner at a time.  A transaction's lock, since one of a session is worthless behind a pooler.  The numbers are
-- "once" and "flow" in ASCII.  The wait is bounded by wait_limit.
SELECT pg_advisory_xact_lock(1869505381, 1718382455);

-- name: wait_limit
-- How long the runner waits for another runner; each migration sets a shorter one for its own locks.
SET LOCAL lock_timeout = '60s';

-- name: books
-- schema_migrations has dbmate's form, so that either tool can go on where the other ended:
-- dbmate --migrations-table onceflow.schema_migrations.  The checksums are ours; dbmate knows nothing of them.
CREATE SCHEMA IF NOT EXISTS onceflow;
CREATE TABLE IF NOT EXISTS onceflow.schema_migrations (version varchar NOT NULL PRIMARY KEY);
CREATE TABLE IF NOT EXISTS onceflow.migration_checksum (
    version varchar NOT NULL PRIMARY KEY,
    name text NOT NULL,
    sha256 text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: books_exist
-- Asked before the books are read: a statement on a missing table would fail as a whole.
SELECT to_regclass('onceflow.schema_migrations') IS NOT NULL AS versions,
       to_regclass('onceflow.migration_checksum') IS NOT NULL AS checksums;

-- name: applied
SELECT version, NULL::text AS sha256 FROM onceflow.schema_migrations ORDER BY version;

-- name: applied_with_checksums
-- A version that dbmate applied has no checksum until the next run of our runner.
SELECT version, sha256
FROM onceflow.schema_migrations
LEFT JOIN onceflow.migration_checksum USING (version)
ORDER BY version;

-- name: record_version
INSERT INTO onceflow.schema_migrations (version) VALUES (%(version)s);

-- name: record_checksum
INSERT INTO onceflow.migration_checksum (version, name, sha256) VALUES (%(version)s, %(name)s, %(sha256)s)
ON CONFLICT (version) DO NOTHING;
