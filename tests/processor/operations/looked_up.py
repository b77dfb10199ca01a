"""Rows of operations as SQL, for tests of parts that write none themselves."""

LOOKED_UP = (
    "INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, kind, args, args_sha256, cause, steps,"
    " api_version, window_from, looked_up_at, state, settled_at) SELECT gen_random_uuid(), 'acct_1', 'test', 'refund', state, 1,"
    " 'stripe', '{}', '', 'app:test', '[]', 'x', now(), now(), state, settled_at"
    " FROM (VALUES ('unknown', NULL), ('review', NULL), ('failed', now())) AS sample (state, settled_at)"
)
STILL = "SELECT subject FROM onceflow.operation WHERE looked_up_at IS NOT NULL ORDER BY subject"
