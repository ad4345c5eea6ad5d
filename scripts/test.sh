#!/usr/bin/env bash
# Install the test dependencies into .venv and run the whole suite, on every CPU that there is.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh test
exec .venv/bin/python -m pytest -n auto "$@"
