-- The database roles of onceflow, for a DBA to read and run: once per database, as a superuser or a role with CREATEROLE
-- that owns the database, before the first `onceflow migrate`.  Then, at the first time and for every release:
--
--   psql -v ON_ERROR_STOP=1 -d payments -f deploy/roles.sql
--   DATABASE_URL=postgresql://onceflow_migrator@db/payments onceflow migrate
--   DATABASE_URL=postgresql://onceflow_migrator@db/payments onceflow topics apply
--   psql -v ON_ERROR_STOP=1 -d payments -U onceflow_migrator -f deploy/grants.sql
--
--   onceflow_migrator    owns the schema; the only role with DDL.  Nothing that keeps running needs it.
--   onceflow_processor   `onceflow process`: adds to the ledger, and never deletes from it
--   onceflow_relay       `onceflow relay`: reads outcomes, says how far they are published
--   onceflow_worker      `onceflow operate`: carries operations out, and never changes what was asked for
--   onceflow_application your own application with `onceflow.attach`: asks for operations, claims facts, stages outcomes
--   onceflow_operator    `onceflow progress`, `lanes`, `outcomes`, `operations`, `parked`, `quarantine`, `topics plan`: decisions
--   onceflow_replayer    `onceflow replay --execute`: a member of onceflow_processor, in whose place your handlers run
--   onceflow_reconciler  `onceflow reconcile`, `verify --findings`: reads the ledger, writes findings, never changes what was done
--   onceflow_reader      reads, for whoever looks on; `onceflow verify`
--
-- The bridge has no role: it never speaks to PostgreSQL.
-- Nobody can log in until you give a password (\password onceflow_processor) or another method in pg_hba.conf.
-- Your handlers write your own tables as onceflow_processor, your settled functions as onceflow_worker: grant them what they
-- need there.  An application keeps its own role, which becomes a member: GRANT onceflow_application TO my_application;
-- A later run changes nothing.

DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['onceflow_migrator', 'onceflow_processor', 'onceflow_relay', 'onceflow_worker',
                                     'onceflow_application', 'onceflow_operator', 'onceflow_reader', 'onceflow_replayer',
                                     'onceflow_reconciler']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', role_name);
        END IF;
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), role_name);
    END LOOP;
    GRANT onceflow_processor TO onceflow_replayer;
    -- A proof sorts what it has read in temporary tables.
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO onceflow_operator, onceflow_reader, onceflow_reconciler', current_database());
    -- For the schema onceflow: its first migration makes it, and thereby owns it.
    EXECUTE format('GRANT CREATE ON DATABASE %I TO onceflow_migrator', current_database());
END
$$;
