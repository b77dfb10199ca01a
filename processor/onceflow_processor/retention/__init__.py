"""Retention: what is deleted by age, by whom, and what others must know of it."""
