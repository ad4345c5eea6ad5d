#!/usr/bin/env bash
# Make the virtual environment .venv in the clone, with rjemu and its run-time dependencies installed into it.
#   bash scripts/setup.sh         run-time dependencies only
#   bash scripts/setup.sh test    also what the tests, the linter and the type checker need
set -euo pipefail
cd "$(dirname "$0")/.."
extras=${1:+[$1]}
if [ ! -x .venv/bin/python ]; then
  python3 -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".$extras"
