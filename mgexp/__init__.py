"""mgexp: train video models with multigrid mini-batches (Wu et al., CVPR 2020)."""

import os

__version__ = "0.1.0"

# Threads of torch on a CPU wait for each other by spinning, which takes the cores from the loader's workers.
# GNU OpenMP reads how long when torch is imported, hence here. Measured on 2 cores with 2 workers, quickstart
# long+short, first phase: 272 and 230 ms a step with 20,000 turns, 282 and 242 with GNU's own 300,000.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
