-- The reconciler: what is known of events, cursors, findings and remedies.  Isolation: READ COMMITTED.
-- Lock order: finding -> remedy -> reconcile_cursor.

-- name: known_events
-- Which of these events have a marker, or are kept in quarantine.  Indexes: primary key of inbox, quarantine_identity.
SELECT event_id FROM onceflow.inbox
WHERE account = %(account)s AND mode = %(mode)s AND event_id = ANY(%(event_ids)s::text[])
UNION
SELECT event_id FROM onceflow.quarantine
WHERE account = %(account)s AND mode = %(mode)s AND event_id = ANY(%(event_ids)s::text[]);

-- name: cursor
SELECT extract(epoch FROM done_until)::bigint FROM onceflow.reconcile_cursor
WHERE account = %(account)s AND mode = %(mode)s AND source = %(source)s;

-- name: move_cursor
-- Never back: a reconciler that slept must not undo what another has done since.
INSERT INTO onceflow.reconcile_cursor (account, mode, source, done_until)
VALUES (%(account)s, %(mode)s, %(source)s, to_timestamp(%(done_until)s))
ON CONFLICT (account, mode, source) DO UPDATE
SET done_until = greatest(reconcile_cursor.done_until, excluded.done_until), moved_at = clock_timestamp();

-- name: cursor_begun
SELECT extract(epoch FROM date_trunc('second', done_until))::bigint, moved_at FROM onceflow.reconcile_cursor
WHERE account = %(account)s AND mode = %(mode)s AND source = %(source)s;

-- name: move_begun
-- Only where nobody has moved it since it was read: a set-back that was noted meanwhile holds.
UPDATE onceflow.reconcile_cursor SET done_until = to_timestamp(%(done_until)s), moved_at = clock_timestamp()
WHERE account = %(account)s AND mode = %(mode)s AND source = %(source)s AND moved_at = %(moved_at)s;

-- name: note_losses
-- Positions that a person has set, and outcomes that came back from the topic, say that a ledger was put back or lost records.  What
-- was lost was received after the last record of some partition, and Stripe tries to deliver an event for three days.  Each decision is
-- noted by its number, since one with an earlier number or time may be committed later; older ones than Stripe lists need not be.  Of a
-- former topic only those partitions count of which nothing was read in the topic of now.  Index: primary key of reconcile_cursor.
WITH losses AS (
    SELECT id, at, split_part(before ->> 'fingerprint', ' ', 2)::bigint AS record_ms
    FROM onceflow.audit
    WHERE action IN ('progress_set', 'lane_import') AND at > clock_timestamp() - interval '31 days'
      AND NOT EXISTS (SELECT FROM onceflow.reconcile_cursor
                      WHERE account = %(account)s AND mode = %(mode)s AND source = %(noted)s::text || audit.id)
), noted AS (
    INSERT INTO onceflow.reconcile_cursor (account, mode, source, done_until)
    SELECT %(account)s, %(mode)s, %(noted)s::text || id, at FROM losses ORDER BY id
    ON CONFLICT (account, mode, source) DO NOTHING
)
INSERT INTO onceflow.reconcile_cursor (account, mode, source, done_until)
SELECT %(account)s, %(mode)s, %(source)s,
       least(clock_timestamp(), to_timestamp(min(record_ms) / 1000.0), (
           SELECT to_timestamp(min(split_part(fingerprint, ' ', 2)::bigint) / 1000.0) FROM onceflow.progress AS here
           WHERE topic = ANY(%(topics)s::text[])
             AND (topic_id = ANY(%(topic_ids)s::text[])
                  OR NOT EXISTS (SELECT FROM onceflow.progress AS begun
                                 WHERE begun.topic = here.topic AND begun.partition = here.partition
                                   AND begun.topic_id = ANY(%(topic_ids)s::text[]) AND begun.fingerprint IS NOT NULL))
       )) - interval '3 days'
FROM losses HAVING count(*) > 0
ON CONFLICT (account, mode, source) DO UPDATE
SET done_until = least(reconcile_cursor.done_until, excluded.done_until), moved_at = clock_timestamp()
RETURNING done_until;

-- name: set_back_objects
-- Every list but that of events and what belongs to it.
UPDATE onceflow.reconcile_cursor SET done_until = to_timestamp(%(to)s), moved_at = clock_timestamp()
WHERE account = %(account)s AND mode = %(mode)s AND source NOT IN ('events', 'events_again') AND source NOT LIKE %(noted)s::text || '%%'
  AND done_until > to_timestamp(%(to)s);

-- name: out_of_reach_until
-- Index: primary key of finding, by its kind.
SELECT coalesce(extract(epoch FROM max((facts ->> 'until')::timestamptz)), 0)::bigint FROM onceflow.finding
WHERE kind = 'events_out_of_reach' AND account = %(account)s AND mode = %(mode)s;

-- name: former_topic
-- Partitions whose position belongs to another topic of this name, and that nobody has begun in this one.
SELECT former.partition, max(former.topic_id) FROM onceflow.progress AS former
WHERE former.topic = %(topic)s AND former.topic_id <> %(topic_id)s AND former.next_offset > 0
  AND NOT EXISTS (SELECT FROM onceflow.progress AS begun
                  WHERE begun.topic = former.topic AND begun.topic_id = %(topic_id)s AND begun.partition = former.partition)
GROUP BY former.partition ORDER BY former.partition;

-- name: found
-- Findings seen now, sorted by their key.  What was healed and comes again is recurring; what a person accepted stays so as
-- long as its facts do.
INSERT INTO onceflow.finding (kind, subject, account, mode, facts, amount, currency)
SELECT kind, subject, account, mode, facts, amount, currency
FROM unnest(%(kinds)s::text[], %(subjects)s::text[], %(accounts)s::text[], %(modes)s::text[], %(facts)s::jsonb[],
            %(amounts)s::bigint[], %(currencies)s::text[])
     AS seen (kind, subject, account, mode, facts, amount, currency)
ORDER BY kind, subject
ON CONFLICT (kind, subject) DO UPDATE
SET last_seen_at = clock_timestamp(), facts = excluded.facts, amount = excluded.amount, currency = excluded.currency,
    times = finding.times + (finding.state = 'healed')::integer,
    state = CASE WHEN finding.state = 'healed' THEN 'recurring'
                 WHEN finding.state = 'accepted' AND finding.facts <> excluded.facts THEN 'open'
                 ELSE finding.state END
RETURNING id, kind, subject, state;

-- name: remedied
INSERT INTO onceflow.remedy (finding_id, action, who, result)
SELECT finding_id, %(action)s, %(who)s, %(result)s FROM unnest(%(finding_ids)s::bigint[]) AS healed (finding_id)
ORDER BY finding_id;

-- name: healed_events
-- Missed events that have their marker now are healed.  Index: finding_open, primary key of inbox.
UPDATE onceflow.finding
SET state = 'healed', healed_at = clock_timestamp()
FROM onceflow.inbox
WHERE finding.kind = 'missed_event' AND finding.state IN ('open', 'recurring')
  AND finding.account = %(account)s AND finding.mode = %(mode)s
  AND inbox.account = finding.account AND inbox.mode = finding.mode AND inbox.event_id = finding.facts ->> 'event_id'
RETURNING finding.id;

-- name: accepted_subjects
-- Which of these a person took as they are.  Index: primary key of finding.
SELECT subject FROM onceflow.finding WHERE kind = %(kind)s AND subject = ANY(%(subjects)s::text[]) AND state = 'accepted';

-- name: gone
-- Findings of these kinds about this subject that are not there any more.
UPDATE onceflow.finding
SET state = 'healed', healed_at = clock_timestamp()
WHERE kind = ANY(%(kinds)s::text[]) AND subject = %(subject)s AND state IN ('open', 'recurring')
RETURNING id;

-- name: positions
-- How far the processor is in a topic; none of a partition that it never read.  Index: primary key of progress.
SELECT partition, next_offset FROM onceflow.progress WHERE topic_id = %(topic_id)s;

-- name: gone_of_kind
-- Findings of a kind that a look at all of them no longer sees.  Index: finding_open.
UPDATE onceflow.finding
SET state = 'healed', healed_at = clock_timestamp()
WHERE kind = %(kind)s AND state IN ('open', 'recurring') AND subject <> ALL(%(subjects)s::text[]);

-- name: operations_named
-- Index: primary key of operation.
SELECT id, state, external_id, surplus,
       CASE WHEN args ->> 'amount' ~ '^[0-9]{1,15}$' THEN (args ->> 'amount')::bigint END, args ->> 'currency', effect, subject
FROM onceflow.operation WHERE id = ANY(%(ids)s::uuid[]);

-- name: hint
-- A reason to look, as a webhook would have given it; the workers take it up.  Of one that is there already nothing is told.
INSERT INTO onceflow.operation_hint (operation_id, event, object, object_id, status, created)
SELECT operation_id, event, object, object_id, status, created
FROM unnest(%(ids)s::uuid[], %(events)s::text[], %(objects)s::text[], %(object_ids)s::text[], %(statuses)s::text[],
            %(createds)s::timestamptz[])
     AS seen (operation_id, event, object, object_id, status, created)
ON CONFLICT DO NOTHING
RETURNING object_id;

-- name: healed_operations
-- Operations that were behind their object and have ended since, or anew.
UPDATE onceflow.finding
SET state = 'healed', healed_at = clock_timestamp()
FROM onceflow.operation
WHERE finding.kind = 'operation_behind' AND finding.state IN ('open', 'recurring')
  AND operation.id = (finding.facts ->> 'operation_id')::uuid
  AND operation.external_id IS NOT NULL AND operation.state IN ('succeeded', 'failed', 'canceled')
  AND operation.state IS DISTINCT FROM finding.facts ->> 'operation_state'
RETURNING finding.id;

-- name: now
SELECT extract(epoch FROM clock_timestamp())::float8;

-- name: missed_types
-- Of events that had to be brought in the last day, and whether Stripe still tried to deliver one in the last hour.  Index:
-- finding_missed.
SELECT facts ->> 'type',
       coalesce(bool_or((facts ->> 'undelivered')::boolean AND first_seen_at > clock_timestamp() - interval '1 hour'), false)
FROM onceflow.finding
WHERE kind = 'missed_event' AND account = %(account)s AND mode = %(mode)s AND last_seen_at > statement_timestamp() - interval '1 day'
  AND facts ->> 'type' IS NOT NULL
GROUP BY 1;

-- name: open_objects
-- Objects that disagreed, the one that was looked at longest ago first.  Index: finding_open.
SELECT facts ->> 'object_id' FROM onceflow.finding
WHERE kind = ANY(%(kinds)s::text[]) AND state IN ('open', 'recurring') AND account = %(account)s AND mode = %(mode)s
  AND facts ->> 'object' = %(object)s
GROUP BY 1 ORDER BY min(last_seen_at) LIMIT %(rows_max)s;

-- name: looked_at
UPDATE onceflow.finding SET last_seen_at = clock_timestamp()
WHERE kind = ANY(%(kinds)s::text[]) AND state IN ('open', 'recurring') AND account = %(account)s AND mode = %(mode)s
  AND facts ->> 'object_id' = %(object_id)s;

-- name: gone_object
-- Findings about an object of other kinds than what is wrong with it now.  Index: primary key of finding.
UPDATE onceflow.finding SET state = 'healed', healed_at = clock_timestamp()
WHERE kind = ANY(%(kinds)s::text[]) AND subject = %(subject)s AND state IN ('open', 'recurring') AND kind <> ALL(%(kept)s::text[]);

-- name: gone_beside
-- Findings of these kinds that are not among those seen now; of one account, or those of none.  Index: finding_open.
UPDATE onceflow.finding
SET state = 'healed', healed_at = clock_timestamp()
WHERE kind = ANY(%(kinds)s::text[]) AND state IN ('open', 'recurring') AND account IS NOT DISTINCT FROM %(account)s::text
  AND subject <> ALL(%(subjects)s::text[]);

-- name: open_of_kinds
-- Index: finding_not_healed.
SELECT kind, subject, facts FROM onceflow.finding WHERE kind = ANY(%(kinds)s::text[]) AND state <> 'healed';

-- name: open_counts
-- Index: finding_open.
SELECT kind, count(*) FROM onceflow.finding WHERE state IN ('open', 'recurring') GROUP BY kind;

-- name: oldest_of_ledgers
-- Index: finding_open.
SELECT min(facts ->> 'since') FROM onceflow.finding WHERE kind = ANY(%(kinds)s::text[]) AND state IN ('open', 'recurring');

-- name: gone_of
-- Index: primary key of finding.
UPDATE onceflow.finding SET state = 'healed', healed_at = clock_timestamp()
FROM unnest(%(kinds)s::text[], %(subjects)s::text[]) AS gone (kind, subject)
WHERE (finding.kind, finding.subject) = (gone.kind, gone.subject) AND finding.state IN ('open', 'recurring');

-- name: last_hour
-- Index: primary key.
SELECT extract(epoch FROM max(hour))::bigint FROM onceflow.reconcile_hour WHERE account = %(account)s AND mode = %(mode)s;

-- name: unsettled_hour
-- The hour of which not all was done when it was read, and that was read longest ago.  Index: reconcile_hour_waiting.
SELECT extract(epoch FROM hour)::bigint FROM onceflow.reconcile_hour
WHERE account = %(account)s AND mode = %(mode)s AND waiting > 0 AND hour >= to_timestamp(%(reach)s)
  AND read_at < clock_timestamp() - %(wait_seconds)s * interval '1 second'
ORDER BY read_at LIMIT 1;

-- name: keep_hour
INSERT INTO onceflow.reconcile_hour (account, mode, hour, listed, id_hash, waiting, listed_at)
VALUES (%(account)s, %(mode)s, to_timestamp(%(hour)s), %(listed)s, %(id_hash)s, %(waiting)s, to_timestamp(%(listed_at)s))
ON CONFLICT (account, mode, hour) DO UPDATE
SET listed = excluded.listed, id_hash = excluded.id_hash, waiting = excluded.waiting, listed_at = excluded.listed_at,
    read_at = clock_timestamp();

-- name: hour_read_early
-- The oldest hour that was read soon after its end only, and is old enough now.  Index: primary key.
SELECT extract(epoch FROM hour)::bigint FROM onceflow.reconcile_hour
WHERE account = %(account)s AND mode = %(mode)s AND hour >= to_timestamp(%(reach)s) AND hour <= to_timestamp(%(late)s)
  AND listed_at < hour + %(late_seconds)s * interval '1 second'
ORDER BY hour LIMIT 1;
