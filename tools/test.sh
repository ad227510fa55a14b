#!/usr/bin/env bash
# Lint, types and tests. Sets everything up on a fresh machine.
#   bash tools/test.sh [--slow] [arguments of pytest]
#   bash tools/test.sh --slurm [arguments of pytest]     the tests on a real Slurm alone: about 10 minutes
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if [ "${1:-}" = --slurm ]; then
    shift
    bash tests/slurm/install.sh
    exec "$PYTHON" -W ignore::FutureWarning -m pytest -q -rs -m slurm --slurm "$@"
fi
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy mgexp
"$PYTHON" -W ignore::FutureWarning -m pytest -q "$@"
