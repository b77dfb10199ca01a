"""The proof that the ledgers agree."""
