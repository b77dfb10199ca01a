"""``onceflow doctor``: looks at everything that the services depend on, and changes nothing.

Rule: each thing that is looked at is one line with a tick or a cross, and a cross has the fix; what cannot be looked at
is a cross, never left out.
"""
