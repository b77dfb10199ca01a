"""Faults on a running system: ``python -m tests.chaos``; see ``catalogue.py`` for what there is."""
