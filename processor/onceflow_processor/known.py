"""What one connection knows of facts, operations and guards: they live and die with it, and with the batch in hand."""

from __future__ import annotations

from onceflow_processor.effects import Effects
from onceflow_processor.facts import Facts
from onceflow_processor.guards import Guards
from onceflow_processor.operations.asked import AskedOperations


class Known:
    """Facts, operations and guards, committed or forgotten together."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.operations = AskedOperations()
        self.guards = Guards()

    def give_back(self, effects: Effects) -> None:
        """Forget what an event claimed and asked for, because its work was rolled back."""
        self.facts.give_back(effects.facts)
        self.operations.give_back(effects.operations)
        if effects.placed is not None:
            self.guards.give_back(effects.placed)

    def roll_back(self) -> None:
        """Forget what the batch in hand claimed and asked for."""
        self.facts.roll_back()
        self.operations.roll_back()
        self.guards.end()

    def commit(self) -> None:
        """The batch in hand is committed."""
        self.facts.commit()
        self.operations.commit()
        self.guards.end()

    def forget_all(self) -> None:
        """A new connection: the database behind it may have been put back."""
        self.facts.forget_all()
        self.operations.forget_all()
        self.guards.end()
