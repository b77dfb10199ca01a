-- name: create_database
-- Read once by the single-user server while a new cluster is made, before it gets its final name.
CREATE DATABASE onceflow;
