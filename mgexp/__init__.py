"""mgexp: train video models with multigrid mini-batches (Wu et al., CVPR 2020)."""

import os

__version__ = "0.1.0"

# On a CPU, torch's threads spin while they wait for each other. So they take the cores from the loader's workers.
# This variable says how long they spin. GNU OpenMP reads it when torch is imported, so set it before that.
# Measured on 2 cores with 2 workers, quickstart long+short, first phase: 272 and 230 ms a step with 20,000 turns,
# 282 and 242 ms with GNU's own 300,000.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
