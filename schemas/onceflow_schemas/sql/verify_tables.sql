-- The temporary tables of one look at all ledgers, and what is copied into them; ``verify.sql`` judges.

-- name: make_seen_event
CREATE TEMPORARY TABLE seen_event (
    topic_id text NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL, record_ms bigint NOT NULL,
    account text, mode text, event_id text, type text, created timestamptz, received_at text, digest bytea NOT NULL,
    value_digest bytea, trusted boolean
) ON COMMIT DROP;

-- name: make_seen_outcome
CREATE TEMPORARY TABLE seen_outcome (
    lane integer NOT NULL, "offset" bigint NOT NULL, seq bigint, ce_id text, outcome_id text, revision integer, type text,
    key text, cause text, created_at text, withheld text, own_headers jsonb, refill boolean NOT NULL, digest bytea, why text
) ON COMMIT DROP;

-- name: make_listed_event
CREATE TEMPORARY TABLE listed_event (
    account text NOT NULL, event_id text NOT NULL, created timestamptz NOT NULL, type text NOT NULL
) ON COMMIT DROP;

-- name: make_listed_span
CREATE TEMPORARY TABLE listed_span (account text NOT NULL, since timestamptz NOT NULL, until timestamptz NOT NULL) ON COMMIT DROP;

-- name: make_passed
-- Where the topics begin and end, and how far the processor was before they were read.
CREATE TEMPORARY TABLE passed (
    topic text NOT NULL, topic_id text NOT NULL, partition integer NOT NULL, low bigint NOT NULL, first bigint NOT NULL, high bigint NOT NULL,
    next_offset bigint NOT NULL, kept_since timestamptz, end_after bigint
) ON COMMIT DROP;

-- name: make_lane_before
-- What lanes said before the topic was read, and the smallest and the largest sequence that was read then.
CREATE TEMPORARY TABLE lane_before (
    lane integer NOT NULL, head_seq bigint NOT NULL, published_seq bigint NOT NULL, low bigint NOT NULL, first bigint NOT NULL,
    first_seq bigint, last_seq bigint, kept_since timestamptz
) ON COMMIT DROP;

-- name: make_proved_event
-- Blocks of offsets whose records are exactly the markers, and how many of these are in each state.
CREATE TEMPORARY TABLE proved_event (
    topic_id text NOT NULL, partition integer NOT NULL, block bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
    processed bigint NOT NULL, ignored bigint NOT NULL, parked bigint NOT NULL
) ON COMMIT DROP;

-- name: make_proved_outcome
-- Blocks of sequences whose records are exactly the rows, in order.
CREATE TEMPORARY TABLE proved_outcome (lane integer NOT NULL, block bigint NOT NULL) ON COMMIT DROP;

-- name: make_unlike
-- Records that name an event that came before, and are no repeats of it; and why.
CREATE TEMPORARY TABLE unlike (topic_id text NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL, why text NOT NULL)
ON COMMIT DROP;

-- name: make_unexplained
CREATE TEMPORARY TABLE unexplained (kind text NOT NULL, subject text NOT NULL, detail text NOT NULL) ON COMMIT DROP;

-- name: copy_events
COPY seen_event FROM STDIN;

-- name: copy_outcomes
COPY seen_outcome FROM STDIN;

-- name: copy_proved_events
COPY proved_event FROM STDIN;

-- name: copy_proved_outcomes
COPY proved_outcome FROM STDIN;

-- name: add_unlike
INSERT INTO unlike VALUES (%(topic_id)s, %(partition)s, %(offset)s, %(why)s);

-- name: copy_listed
COPY listed_event FROM STDIN;

-- name: add_span
INSERT INTO listed_span VALUES (%(account)s, to_timestamp(%(since)s), to_timestamp(%(until)s));

-- name: add_passed
INSERT INTO passed VALUES (%(topic)s, %(topic_id)s, %(partition)s, %(low)s, %(first)s, %(high)s, %(next_offset)s, %(kept_since)s);

-- name: note_end
-- Where the log ends after the markers were read: no marker that was read then can name a record behind it.
UPDATE passed SET end_after = %(high)s WHERE topic_id = %(topic_id)s AND partition = %(partition)s;

-- name: add_lane
INSERT INTO lane_before VALUES (%(lane)s, %(head_seq)s, %(published_seq)s, %(low)s, %(first)s, %(first_seq)s, %(last_seq)s,
                                %(kept_since)s);
