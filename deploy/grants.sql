-- What each role of deploy/roles.sql may do in schema onceflow.  Run it as onceflow_migrator (or a superuser) after each
-- `onceflow migrate`: a new table can be used by nobody before.  It takes everything back first and is one transaction,
-- so services that run meanwhile never notice.
--
-- No role but the owner may DELETE from, or TRUNCATE, the ledger (inbox, outcome, fact, quarantine, audit), and nobody
-- may change what an outcome says.

BEGIN;

GRANT USAGE ON SCHEMA onceflow TO onceflow_processor, onceflow_relay, onceflow_operator, onceflow_reader;
REVOKE ALL ON ALL TABLES IN SCHEMA onceflow FROM onceflow_processor, onceflow_relay, onceflow_operator, onceflow_reader;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceflow FROM PUBLIC;

-- Every service compares the schema with its release before it does anything.
GRANT SELECT ON onceflow.schema_migrations, onceflow.migration_checksum TO onceflow_processor, onceflow_relay;
GRANT EXECUTE ON FUNCTION onceflow.ensure TO onceflow_processor, onceflow_relay, onceflow_operator;

-- Processor: the batch transaction.
GRANT SELECT, INSERT, UPDATE ON onceflow.deployment, onceflow.progress TO onceflow_processor;
GRANT SELECT, INSERT, UPDATE (state) ON onceflow.inbox TO onceflow_processor;
GRANT SELECT, INSERT ON onceflow.outcome, onceflow.fact, onceflow.quarantine TO onceflow_processor;
GRANT SELECT, UPDATE (head_seq, state, detail) ON onceflow.lane TO onceflow_processor;
-- Not of the ledger: a guard lives as long as its transaction, a suspect until it is done.
GRANT SELECT, INSERT, DELETE ON onceflow.batch_guard TO onceflow_processor;
GRANT SELECT, INSERT, UPDATE, DELETE ON onceflow.suspect TO onceflow_processor;

-- Relay: hands out no sequence, changes no outcome.
GRANT SELECT ON onceflow.outcome, onceflow.deployment TO onceflow_relay;
GRANT SELECT, INSERT, UPDATE ON onceflow.lease TO onceflow_relay;
GRANT SELECT, UPDATE (published_seq, state, detail) ON onceflow.lane TO onceflow_relay;

-- Operator: decisions about lanes, positions and outcomes that cannot be published.
GRANT SELECT ON ALL TABLES IN SCHEMA onceflow TO onceflow_operator, onceflow_reader;
GRANT INSERT ON onceflow.audit TO onceflow_operator;
GRANT UPDATE (published_seq, topic_id, state, detail) ON onceflow.lane TO onceflow_operator;
GRANT UPDATE (withheld) ON onceflow.outcome TO onceflow_operator;
GRANT INSERT, UPDATE ON onceflow.progress, onceflow.lease TO onceflow_operator;

COMMIT;
