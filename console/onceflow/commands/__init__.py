"""One file per command: its options, the calls it makes and how its result is written.

Rule: a command decides nothing about events, records or tables; it turns options into a call and a result into text.
"""
