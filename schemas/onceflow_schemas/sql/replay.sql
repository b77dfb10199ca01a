-- Replay: what is known of events that are read again.  Isolation: READ COMMITTED.

-- name: markers
-- What the inbox says about these events, before their bodies are parsed.  Index: primary key of inbox.
SELECT inbox.account, inbox.mode, inbox.event_id, inbox.state
FROM unnest(%(accounts)s::text[], %(modes)s::text[], %(event_ids)s::text[]) AS asked (account, mode, event_id)
JOIN onceflow.inbox USING (account, mode, event_id);

-- name: positions
-- Where the processors stand: what lies behind is theirs to run.  Index: primary key of progress.
SELECT partition, next_offset FROM onceflow.progress
WHERE cluster_id = %(cluster_id)s AND topic_id = %(topic_id)s;
