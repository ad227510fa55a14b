"""mgexp: train video models with multigrid mini-batches (Wu et al., CVPR 2020)."""

import os
import sys

__version__ = "0.1.0"

# On a CPU, torch's threads spin while they wait for each other. So they take the cores from the loader's workers
# and from a second training. This variable says how many turns they spin. GNU OpenMP reads it when torch is
# imported, so it is set before that, unless the user has chosen how threads wait. benchmarks/README.md has the
# measurements.
WAITS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")
if "torch" not in sys.modules and not any(name in os.environ for name in WAITS):
    os.environ["GOMP_SPINCOUNT"] = "20000"
