"""Parked and quarantined events as people see them and decide about them.

Rule: nothing runs here.  A decision is written beside its row in audit, and a processor carries it out.
"""
