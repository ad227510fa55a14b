"""From finished runs to tables and pages.

The seconds of training go from result.json through `runs.read_run` into ``Run.train_seconds``. ``Pair.speed_up``
in `comparison` divides the seconds of two rows, seed by seed, and gives an ``Estimate``. `render` hands it to a
template, which says how it is written: ``{{ pair.speed_up | estimate(2, "×") }}``. `store` decides which runs
count.
"""
