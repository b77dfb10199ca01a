-- Running totals: the difference is booked once, in any order, and never goes back.  Isolation: READ COMMITTED.

-- name: book
-- One statement: who meets an open transaction's row waits for it and then compares with what it committed.  A lower or equal
-- total changes nothing, but its row is locked all the same.  Index: primary keys.
WITH raised AS (
    INSERT INTO onceflow.booked AS known (namespace, key, total, difference)
    VALUES (%(namespace)s, %(key)s, %(total)s, %(total)s)
    ON CONFLICT (namespace, key) DO UPDATE
    SET total = excluded.total, difference = excluded.total - known.total, updated_at = clock_timestamp()
    WHERE excluded.total > known.total
    RETURNING namespace, key, difference
), noted AS (
    INSERT INTO onceflow.booking AS known (namespace, key, cause, difference)
    SELECT namespace, key, %(cause)s, difference FROM raised WHERE difference > 0
    ON CONFLICT (namespace, key, cause) DO UPDATE SET difference = known.difference + excluded.difference
)
SELECT coalesce((SELECT difference FROM raised), 0);
