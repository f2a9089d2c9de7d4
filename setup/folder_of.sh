#!/bin/bash
# folder_of.sh LIST FOLDER: installs the packages of a pinned list into a separate folder, for tests of `./test full`.
# With PYTHONPATH=FOLDER they take precedence over those in .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
list=$1 folder=$2
exec 9<"$list"
flock 9
cmp -s "$list" "$folder/made-of" && exit
rm -rf "$folder"
.venv/bin/python -m pip install --quiet --require-hashes --no-deps --no-build-isolation --target "$folder" --requirement "$list"
cp "$list" "$folder/made-of"
