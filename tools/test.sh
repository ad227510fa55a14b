#!/usr/bin/env bash
# Lint, types and tests. Sets everything up on a fresh machine.
#   bash tools/test.sh [--slow] [arguments of pytest]
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy mgexp
"$PYTHON" -W ignore::FutureWarning -m pytest -q "$@"
