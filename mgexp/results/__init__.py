"""From finished runs to tables and pages.

The seconds of training go from result.json through `runs.read_run` into ``Run.train_seconds``. `study_runs` or
`store` makes rows of the runs. ``Pair.speed_up`` in `comparison` divides the seconds of two rows, seed by seed,
and gives an ``Estimate``. A page (`study_page`, `report`, `experiments_page`) hands it to a template, where a
filter of `render` writes it.
"""
