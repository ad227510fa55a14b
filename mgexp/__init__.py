"""mgexp: train video models with multigrid mini-batches (Wu et al., CVPR 2020)."""

import os
import sys
from pathlib import Path
from types import TracebackType

__version__ = "0.1.0"

# On a CPU, torch's threads spin while they wait for each other. So they take the cores from the loader's workers
# and from a second training. This variable says how many turns they spin. GNU OpenMP reads it when torch is
# imported, so it is set before that, unless the user has chosen how threads wait. benchmarks/README.md has the
# measurements.
WAITS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")
if "torch" not in sys.modules and not any(name in os.environ for name in WAITS):
    os.environ["GOMP_SPINCOUNT"] = "20000"


def _stop_quietly(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """End a tool as `mgexp.options.run_tool` does, if Ctrl-C comes while the tool imports torch."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, traceback)
    print(f"{Path(sys.argv[0]).name}: stopped by Ctrl-C", file=sys.stderr)
    sys.exit(4)


# Every tool imports mgexp before torch. The programs of others keep their own way to end.
if Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parents[1] / "tools":
    sys.excepthook = _stop_quietly
