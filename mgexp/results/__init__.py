"""From finished runs to tables and pages.

`store.read_run` takes the seconds of training from result.json, and `store.gather_runs` decides which runs of a
study count. ``Pair.speed_up`` in `comparison` divides the seconds of two rows, seed by seed, and gives an
``Estimate``. `render` hands it to a template, which says how it is written:
``{{ pair.speed_up | estimate(2, "×") }}``.
"""
