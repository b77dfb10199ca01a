-- What a handler with one SQL statement runs.

-- name: effect
INSERT INTO bench.effect (event_id, amount) VALUES (%s, %s);
