"""What each resource of Stripe's interface does: one module per resource, each with the addresses that it adds."""

from importlib import import_module
from pkgutil import iter_modules

from onceflow_simulator.routes import Routes


def add_all(routes: Routes) -> None:
    """Add every address of Stripe's interface that the simulator knows: those of each module here that has some."""
    for found in iter_modules(__path__):
        add_routes = getattr(import_module(f"{__name__}.{found.name}"), "add_routes", None)
        if add_routes is not None:
            add_routes(routes)
