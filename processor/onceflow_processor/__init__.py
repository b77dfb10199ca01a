"""Records in, one PostgreSQL transaction per batch, outcomes out.

Rule: an event's marker, what its handlers write, its facts, its outcomes and the progress of its partition are
committed together or not at all.
"""
