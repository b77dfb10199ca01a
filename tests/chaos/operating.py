"""What an operator does after a ledger fault: the product's own commands, run to their end."""

from __future__ import annotations

from itertools import count

from tests.chaos.world import World

REASON = ("--reason", "a fault of the chaos run", "--execute")

_numbers = count(1)


def run_command(world: World, command: list[str], *, role: str = "processor") -> str:
    """Run a command with the settings of a role; return what it wrote.

    Raises:
        AssertionError: it did not end with 0.
    """
    part = world.part(f"{command[0]}-{command[1]}-{next(_numbers)}", role=role, command=command)
    part.start()
    code = part.wait_ended(90)
    words = part.last_words(20)
    assert code == 0, f"{' '.join(command)} ended with {code}: {words}"
    return words


def read_again(world: World, partitions: list[int], *, accept_loss: bool = False) -> None:
    """Set partitions of the event topic to the earliest record."""
    loss = ["--accept-loss"] if accept_loss else []
    for partition in partitions:
        run_command(world, ["progress", "set", world.topics.events[0], str(partition), "--earliest", *loss, *REASON])


def resume_lanes(world: World, lanes: list[int], *, accept: str) -> None:
    """Let lanes go on; the relay is stopped for it and started again."""
    world.parts["relay"].stop()
    for lane in lanes:
        run_command(world, ["lanes", "resume", str(lane), "--accept", accept, *REASON], role="relay")
    world.restart("relay")
