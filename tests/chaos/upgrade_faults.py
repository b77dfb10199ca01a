"""G4: the former release and this one side by side on the new schema, and the way back.

Rule: a process that runs goes on over a migration; it is never started on a schema that it does not know, neither newer nor
older, and whatever runs, each event takes effect once.
"""

from __future__ import annotations

from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.postgres_faults import terminate_backends
from tests.chaos.upgrade_world import TRIES_MAX, UpgradeWorld
from tests.chaos.waits import wait_owners, wait_processed, wait_published
from tests.chaos.world import World

OTHER_SCHEMA = 4
EVENTS = 60


@fault("G4", "N-1 and N side by side, and the way back after the migration", soak="upgrade", last=True)
def upgrade_and_back(world: World, dice: Random) -> str:
    """Migrated under load, both releases share the partitions, the former one cannot come back, then everything goes back."""
    assert isinstance(world, UpgradeWorld)
    wait_processed(world)
    world.run("migrate", tries_max=TRIES_MAX)
    wait_processed(world)
    former = world.parts["processor"]
    world.join("processor")
    wait_owners(world, 2)
    world.join("relay")
    wait_processed(world, EVENTS)
    wait_published(world, EVENTS)
    assert former.alive, "the former release goes on over the migration"
    ended = terminate_backends(world, "processor")
    code = former.wait_ended()
    assert code == OTHER_SCHEMA, f"the former release ended with {code}: {former.last_words()}"
    wait_processed(world, EVENTS)
    refused = world.join_former_refused("processor")
    assert refused == OTHER_SCHEMA, refused
    world.replace_all(former=False)
    wait_published(world, EVENTS)
    for part in world.parts.values():
        part.stop()
    world.migrate_down()
    world.replace_all(former=True)
    wait_published(world, EVENTS)
    world.run("migrate", tries_max=TRIES_MAX)
    world.replace_all(former=False)
    wait_published(world, EVENTS)
    return fired(ended, f"side by side, {ended} connections ended, the former ended with {code}, back and forth again")
