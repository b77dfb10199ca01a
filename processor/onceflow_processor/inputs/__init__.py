"""Events from topics that others write: what each may carry, how it is wrapped, and who vouches for it.

Rule: everything here is pure.  A record that cannot be believed or read has no identity, so it never touches the inbox.
"""
