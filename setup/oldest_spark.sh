#!/bin/bash
# oldest_spark.sh FOLDER: puts the oldest Spark that the product runs on into a folder, for the tests of `./test full`.
# With PYTHONPATH=FOLDER it takes the place of the one in .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1 wanted=requirements/oldest/spark.txt
exec 9<"$wanted"
flock 9
cmp -s "$wanted" "$folder/made-of" && exit
rm -rf "$folder"
.venv/bin/python -m pip install --quiet --require-hashes --no-deps --no-build-isolation --target "$folder" --requirement "$wanted"
cp "$wanted" "$folder/made-of"
