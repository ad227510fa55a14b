#!/usr/bin/env bash
# Measure mgexp on the GPU of this machine, piece by piece, and write a page of what was found.
#   bash benchmarks/gpu.sh                        all pieces; start it again to continue
#   bash benchmarks/gpu.sh --device cpu --tiny    the same code on a CPU, with small shapes
#   bash benchmarks/gpu.sh --help                 all options
# PYTHON is the interpreter to use. Without it, .venv is made if necessary, as tools/test.sh does.
if [ -n "${PYTHON:-}" ]; then
    set -euo pipefail
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
else
    source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
fi
exec "$PYTHON" benchmarks/gpu.py "$@"
