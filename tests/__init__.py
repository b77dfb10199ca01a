"""The project's own tests.

A package on purpose: as a plain folder the name `tests` would lose against any installed distribution that ships one.
"""
