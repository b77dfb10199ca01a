"""Reading a stretch of an event topic again, by decision of a person: looking, running what is missing, and rerunning.

Rule: a replay never touches the live group, its offsets or the progress rows; only the inbox decides what runs.
"""
