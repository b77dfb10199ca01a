"""Compares the ledgers, heals what is safe, reports the rest."""
