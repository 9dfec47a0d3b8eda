#!/bin/sh
# Makes .venv, or brings it up to date, from constraints.txt and pyproject.toml.
# Silent when there is nothing to do; pip's own output is shown only when pip fails.
#   PYTHON=path tools/venv.sh    to use that interpreter for a new .venv
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
STAMP=$VENV/.installed
LOG=$VENV/install.log

# True when $1 runs, is Python 3.11 to 3.13 and can make environments. It is run, not only looked
# up: a version manager's `python3.13` can be on PATH and still refuse to start.
usable() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        >/dev/null 2>&1
}

find_python() {
    for name in python3.13 python3.12 python3.11 python3 python; do
        usable "$name" && { echo "$name"; return 0; }
    done
    for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123].*/bin/python; do
        usable "$path" && { echo "$path"; return 0; }
    done
    if command -v uv >/dev/null 2>&1; then
        path=$(uv python find --no-project '>=3.11,<3.14' 2>/dev/null) || path=
        [ -n "$path" ] && usable "$path" && { echo "$path"; return 0; }
    fi
    return 1
}

if [ -e "$VENV" ] && ! "$VENV/bin/python" -c 'import pip' >/dev/null 2>&1; then
    echo "$VENV cannot be used: $VENV/bin/python does not start, or has no pip." >&2
    echo "Its Python may have been removed or the folder moved. Delete it (make clean-venv), then run make again." >&2
    exit 1
fi

if [ ! -e "$VENV" ]; then
    if [ -n "${PYTHON:-}" ]; then
        if ! usable "$PYTHON"; then
            echo "PYTHON=$PYTHON: expected Python 3.11, 3.12 or 3.13 with the venv and ensurepip modules." >&2
            "$PYTHON" --version >&2 || true
            exit 1
        fi
        python=$PYTHON
    elif ! python=$(find_python); then
        echo "No usable Python found: the course needs Python 3.11, 3.12 or 3.13 with the venv and ensurepip modules." >&2
        echo "Looked for python3.13, python3.12, python3.11, python3 and python on PATH, in pyenv and in uv." >&2
        echo "Install one (on Debian and Ubuntu also the package python3-venv), or name one: make book PYTHON=/path/to/python3" >&2
        exit 1
    fi
    echo "Making $VENV with $("$python" --version 2>&1) ($python); the packages take a few minutes, once."
    "$python" -m venv "$VENV"
fi

# The stamp is a digest of what decides the installation, so that a checkout which only touches the
# files' dates does not install again.
wanted=$("$VENV/bin/python" - constraints.txt pyproject.toml <<'PY'
import hashlib
import pathlib
import sys

digest = hashlib.sha256()
for name in sys.argv[1:]:
    digest.update(pathlib.Path(name).read_bytes())
print(sys.version_info[:2], digest.hexdigest())
PY
)
if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$wanted" ]; then
    touch "$STAMP"
    exit 0
fi

echo "Installing the course and its tools into $VENV."
rm -f "$STAMP"
if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input \
    --constraint constraints.txt --editable '.[book,dev]' >"$LOG" 2>&1; then
    cat "$LOG" >&2
    echo >&2
    echo "pip could not install the course into $VENV; what it said stands above and in $LOG." >&2
    exit 1
fi
echo "$wanted" >"$STAMP"
