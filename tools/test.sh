#!/usr/bin/env bash
# Check lint and types, and run the tests. On a fresh machine, this installs everything first.
#   bash tools/test.sh [--slow] [arguments of pytest]
#   bash tools/test.sh --slurm [arguments of pytest]     only the tests on a real Slurm (about 10 minutes)
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if [ "${1:-}" = --slurm ]; then
    shift
    bash tests/slurm/install.sh
    exec "$PYTHON" -W ignore::FutureWarning -m pytest -q -rs -m slurm --slurm "$@"
fi
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
"$PYTHON" -W ignore::FutureWarning -m pytest -q --numprocesses auto --dist worksteal "$@"
