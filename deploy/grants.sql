-- What each role of deploy/roles.sql may do in schema onceflow.  Run it as onceflow_migrator (or a superuser) after each
-- `onceflow migrate`: a new table can be used by nobody before.  It takes everything back first and is one transaction,
-- so services that run meanwhile never notice.
--
-- No role but the owner may DELETE from, or TRUNCATE, the ledger (inbox, outcome, fact, quarantine, audit, operation,
-- attempt, review), and nobody may change what an outcome says or what an operation was asked for.

BEGIN;

GRANT USAGE ON SCHEMA onceflow
TO onceflow_processor, onceflow_relay, onceflow_worker, onceflow_application, onceflow_operator, onceflow_reader, onceflow_replayer,
   onceflow_reconciler;
REVOKE ALL ON ALL TABLES IN SCHEMA onceflow
FROM onceflow_processor, onceflow_relay, onceflow_worker, onceflow_application, onceflow_operator, onceflow_reader, onceflow_replayer,
     onceflow_reconciler;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceflow FROM PUBLIC;

-- Every service compares the schema with its release before it does anything.
GRANT SELECT ON onceflow.schema_migrations, onceflow.migration_checksum
TO onceflow_processor, onceflow_relay, onceflow_worker, onceflow_reconciler;
GRANT EXECUTE ON FUNCTION onceflow.ensure TO onceflow_processor, onceflow_relay, onceflow_worker, onceflow_operator;

-- Whoever asks for an operation writes what was asked for, and no state.
GRANT INSERT (id, account, mode, effect, subject, occurrence, order_key, kind, args, args_sha256, cause, steps, api_version,
              requested_at, window_from, restores)
ON onceflow.operation TO onceflow_processor, onceflow_worker, onceflow_application, onceflow_operator;
GRANT SELECT (id, args_sha256) ON onceflow.operation TO onceflow_processor, onceflow_application;

-- Processor: the batch transaction.
GRANT SELECT, INSERT, UPDATE ON onceflow.deployment, onceflow.progress TO onceflow_processor;
GRANT SELECT ON onceflow.retention TO onceflow_processor;
GRANT SELECT, INSERT, UPDATE (state, is_stale, ignored_because, processed_at, handler_set) ON onceflow.inbox TO onceflow_processor;
GRANT SELECT, INSERT, UPDATE ON onceflow.object_guard TO onceflow_processor;
GRANT SELECT, INSERT, UPDATE ON onceflow.booked, onceflow.booking TO onceflow_processor, onceflow_worker;
GRANT SELECT, INSERT ON onceflow.fact_claim, onceflow.outcome_contradiction TO onceflow_processor, onceflow_worker;
-- What the topic alone knows to be taken, after a restore.
GRANT SELECT ON onceflow.imported_fact TO onceflow_processor, onceflow_worker, onceflow_application;
GRANT EXECUTE ON FUNCTION onceflow.fact_digest TO onceflow_processor, onceflow_worker, onceflow_application;
GRANT SELECT, INSERT ON onceflow.outcome, onceflow.fact, onceflow.quarantine TO onceflow_processor;
GRANT UPDATE (code, detail, handler, traceback, quarantined_at, order_key, failure_group, attempts, retry_asked_at, account,
              mode, event_id, type, decided_at, decided_by, decision, reason, dead_lettered_at, dead_letter_code)
ON onceflow.quarantine TO onceflow_processor;
GRANT SELECT, UPDATE (head_seq, state, detail) ON onceflow.lane TO onceflow_processor;
GRANT INSERT ON onceflow.operation_hint TO onceflow_processor;
-- Whoever notices a restore forgets what look-ups found before it.
GRANT SELECT (state, looked_up_at), UPDATE (looked_up_at) ON onceflow.operation TO onceflow_processor;
-- Not of the ledger: a guard lives as long as its transaction, a suspect until it is done.
GRANT SELECT, INSERT, DELETE ON onceflow.batch_guard TO onceflow_processor;
GRANT SELECT, INSERT, UPDATE, DELETE ON onceflow.suspect TO onceflow_processor;
-- Nor what is parked: an event leaves it in the transaction that gives it another state.
GRANT SELECT, INSERT, UPDATE, DELETE ON onceflow.parked_key, onceflow.parked TO onceflow_processor;
-- Asks for reads, and uses what they found.
GRANT SELECT, INSERT (account, mode, kind, object_id, first_path, path, api_version),
UPDATE (asked_at, first_path, path, state, due_at, tries)
ON onceflow.object_read TO onceflow_processor;

-- Replayer: a member of onceflow_processor, whose place it takes; its runs are decisions of a person.
GRANT SELECT, INSERT, UPDATE ON onceflow.replay_run, onceflow.replay_stretch TO onceflow_replayer;
GRANT INSERT ON onceflow.audit TO onceflow_replayer;

-- Relay: hands out no sequence, changes no outcome.
GRANT SELECT ON onceflow.outcome, onceflow.deployment TO onceflow_relay;
GRANT SELECT, INSERT, UPDATE ON onceflow.lease TO onceflow_relay;
GRANT SELECT, UPDATE (published_seq, state, detail) ON onceflow.lane TO onceflow_relay;
-- It may be the first to notice a restore.
GRANT UPDATE (restores) ON onceflow.deployment TO onceflow_relay;
GRANT SELECT (state, looked_up_at), UPDATE (looked_up_at) ON onceflow.operation TO onceflow_relay;
-- Its maintenance duty: these delete what they find old enough themselves, with the rights of the owner.
GRANT SELECT ON onceflow.retention TO onceflow_relay;
GRANT EXECUTE ON FUNCTION onceflow.retire_markers, onceflow.retire_outcomes, onceflow.retire_quarantine, onceflow.retire_reads
TO onceflow_relay;
-- What the topic knows beyond a restored head comes back by this alone, appended with the rights of the owner.
GRANT EXECUTE ON FUNCTION onceflow.import_outcomes TO onceflow_relay;

-- Worker: carries operations out, runs settled functions, and moves the outcomes of applications into lanes.
GRANT SELECT, INSERT, UPDATE ON onceflow.deployment, onceflow.account_budget TO onceflow_worker;
GRANT SELECT ON onceflow.operation TO onceflow_worker;
GRANT UPDATE (state, step, external_id, lease_owner, lease_until, fence, next_attempt_at, tries, looked_up_at, action_until,
              conclusion, look_asked, look_at, surplus, told, last_error, result, settled_at)
ON onceflow.operation TO onceflow_worker;
GRANT SELECT, INSERT, UPDATE (sent_at, settled_at, evidence, detail, http_status, request_id)
ON onceflow.attempt TO onceflow_worker;
GRANT SELECT, INSERT, UPDATE (decided_at, decided_by, decision, reason) ON onceflow.review TO onceflow_worker;
GRANT SELECT, UPDATE (taken_at) ON onceflow.operation_hint TO onceflow_worker;
GRANT SELECT, INSERT ON onceflow.outcome, onceflow.fact TO onceflow_worker;
GRANT SELECT, UPDATE (head_seq, state, detail) ON onceflow.lane TO onceflow_worker;
-- Not of the ledger: a guard lives as long as its transaction, a staged outcome until it is in its lane.
GRANT SELECT, INSERT, DELETE ON onceflow.batch_guard TO onceflow_worker;
GRANT SELECT, DELETE ON onceflow.outcome_staged TO onceflow_worker;
-- Reads at Stripe: their answers, and the keys that wait for them.
GRANT SELECT, UPDATE ON onceflow.object_read TO onceflow_worker;
GRANT SELECT, INSERT, DELETE ON onceflow.object_read_part TO onceflow_worker;
GRANT SELECT ON onceflow.parked TO onceflow_worker;
GRANT SELECT, UPDATE (reason, due_at) ON onceflow.parked_key TO onceflow_worker;

-- Reconciler: reads the ledger and writes what it finds; whatever it heals walks the road of live traffic.
GRANT SELECT, INSERT, UPDATE ON onceflow.deployment TO onceflow_reconciler;
GRANT SELECT ON onceflow.inbox, onceflow.quarantine, onceflow.progress, onceflow.parked, onceflow.parked_key, onceflow.operation,
                onceflow.lane, onceflow.outcome, onceflow.outcome_contradiction, onceflow.retention, onceflow.audit
TO onceflow_reconciler;
GRANT SELECT, INSERT, UPDATE ON onceflow.lease, onceflow.finding, onceflow.reconcile_cursor, onceflow.reconcile_hour
TO onceflow_reconciler;
GRANT SELECT, INSERT ON onceflow.remedy TO onceflow_reconciler;
-- What it wrote itself and is old.
GRANT EXECUTE ON FUNCTION onceflow.retire_findings, onceflow.retire_hours TO onceflow_reconciler;
-- A reason to look at an operation, as a webhook would have given it.
GRANT SELECT (object_id), INSERT ON onceflow.operation_hint TO onceflow_reconciler;

-- Application: what onceflow.attach needs, inside the application's own transaction.  It sees no lane, and of events the ids that
-- stand in imported_fact.
GRANT SELECT ON onceflow.deployment TO onceflow_application;
GRANT INSERT (namespace, key, cause) ON onceflow.fact TO onceflow_application;
GRANT INSERT (outcome_id, type, key, value, cause) ON onceflow.outcome_staged TO onceflow_application;

-- Operator: decisions about lanes, positions, failed events, operations in review, and outcomes that cannot be published.
GRANT SELECT ON ALL TABLES IN SCHEMA onceflow TO onceflow_operator, onceflow_reader;
GRANT INSERT ON onceflow.audit TO onceflow_operator;
GRANT UPDATE (published_seq, topic_id, state, detail) ON onceflow.lane TO onceflow_operator;
GRANT UPDATE (withheld) ON onceflow.outcome TO onceflow_operator;
GRANT INSERT, UPDATE ON onceflow.progress, onceflow.lease TO onceflow_operator;
GRANT UPDATE (conclusion, cancel_asked, fence, lease_owner, lease_until, next_attempt_at, tries)
ON onceflow.operation TO onceflow_operator;
GRANT UPDATE (decided_at, decided_by, decision, reason) ON onceflow.review TO onceflow_operator;
GRANT UPDATE (blocked_until) ON onceflow.account_budget TO onceflow_operator;
-- Events that failed: retried, or left out while the rest of their key goes on.
GRANT UPDATE (state) ON onceflow.inbox TO onceflow_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON onceflow.parked_key, onceflow.parked TO onceflow_operator;
GRANT INSERT, UPDATE (code, detail, handler, traceback, quarantined_at, order_key, failure_group, attempts, type,
                      retry_asked_at, retry_asked_by, decided_at, decided_by, decision, reason)
ON onceflow.quarantine TO onceflow_operator;
-- Findings that a person takes as they are, or has healed.
GRANT INSERT ON onceflow.remedy TO onceflow_operator;
GRANT UPDATE (look_asked) ON onceflow.operation TO onceflow_operator;
GRANT UPDATE (state, decided_at, decided_by, reason) ON onceflow.finding TO onceflow_operator;

COMMIT;
