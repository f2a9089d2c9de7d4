#!/bin/bash
# Pins requirements/*.in with hashes into requirements/*.txt. Needs `uv` (pip install uv). Arguments are passed to uv, for example --upgrade.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../requirements"
for name in build run lake dev bench; do
  # setuptools reads lake.in as well, and does not understand constraints.
  known=(); [ $name != lake ] || known=(--constraints run.txt)
  uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-emit-index-url \
    "${known[@]}" "$@" "$name.in" --output-file "$name.txt"
done
