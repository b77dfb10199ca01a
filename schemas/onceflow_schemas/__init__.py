"""What things are and which changes are legal: records, identities, codes and the SQL files.

Rule: everything here is pure.  No module imports a client library, the clock, the network, threads or
the environment; import-linter holds that.
"""
