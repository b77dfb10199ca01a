"""What carries a frozen step to the other side and says what came of it: Stripe, HTTP, mail.

Rule: a sender proves or admits that it does not know.  It never raises for anything the other side does, never repeats a
call by itself, and never follows where an answer points.
"""
