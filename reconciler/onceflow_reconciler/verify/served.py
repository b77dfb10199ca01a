"""Whether the ledgers are those that are asked for.

Rule: what looks at another deployment, or at an account that nobody serves, proves nothing, and says so.
"""

from __future__ import annotations

from onceflow_processor.start_check import refuse_other
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import Tables
from onceflow_schemas.failure import Misconfigured, Refused


def check_served(question: Question, tables: Tables) -> None:
    """Hold the question against the deployment that the database belongs to.

    Raises:
        Misconfigured: ``database_other_deployment``.
        Refused: ``unknown_account``: the account that is asked for is not served.
    """
    rules = question.rules
    rows = tables.rows("served")
    served = set(rules.accounts)
    if rows:
        [(deployment, mode, accounts)] = rows
        refuse_other((deployment, mode), asked=(rules.deployment, rules.mode))
        served |= set(accounts)
    elif tables.rows("has_markers") == [(True,)]:
        message = "the database has markers, and no row says whose they are"
        raise Misconfigured("database_other_deployment", message)
    if question.account is not None and question.account not in served:
        names = ", ".join(sorted(served))
        raise Refused("unknown_account", f"{question.account} is not served here", f"These are: {names}.")
