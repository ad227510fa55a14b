# Set up the environment; quickstart.sh and test.sh source this file. It changes to the repository, makes .venv if
# there is none, installs mgexp with the versions of constraints.txt, and sets $PYTHON to the path of the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=.venv/bin/python
stamp=.venv/installed
wanted=$(cat pyproject.toml constraints.txt | sha256sum)

if [ ! -x "$PYTHON" ]; then
    host=$(command -v python3 || true)
    if [ -z "$host" ] || ! "$host" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        echo "mgexp needs Python 3.10 or newer as python3 (found: ${host:-none})" >&2
        exit 1
    fi
    echo "Making .venv with $("$host" --version)"
    "$host" -m venv .venv || {
        echo "venv failed: on Debian or Ubuntu, install the package python3-venv" >&2
        exit 1
    }
fi
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "Installing mgexp and its dependencies (torch is large: some minutes)"
    PYTHONWARNINGS=ignore "$PYTHON" -m pip install --progress-bar off --disable-pip-version-check \
        --constraint constraints.txt --editable '.[dev]' | sed --unbuffered --quiet \
        '/Downloading/p; s/^Installing collected packages.*/Installing them: a minute or more/p'
    "$PYTHON" -m mgexp.wheels
    echo "$wanted" >"$stamp"
fi
# Only the user's own shell needs this step.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    echo "Next: source .venv/bin/activate"
fi
