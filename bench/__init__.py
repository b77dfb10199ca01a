"""The bench: what the road costs, as ratios against what one would write instead, measured side by side in one run.

In reading order: ``figures`` (names and goals), ``measuring`` (rounds and medians), ``stage`` (services, databases,
topics, children), then one module per group of figures, ``report`` and ``__main__``.
"""
