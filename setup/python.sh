# shellcheck shell=bash
# The virtual environment at .venv: every download is checked against requirements/*.txt. Sourced.

# The Python that has made .venv is kept, so that a later shell with another python3 does not replace a good environment.
# A Python in .venv is never chosen: with .venv/bin in PATH, the environment would be removed with the Python that is to
# make it.
find_python() {
  local name made own=":$PWD/.venv/bin:" path=":$PATH:"
  while [[ $path == *"$own"* ]]; do path=${path/"$own"/:}; done
  path=${path#:}
  local PATH=${path%:}
  made=$(cat .venv/made-by 2>/dev/null) || made=
  made=${made#"$PWD "}
  for name in "${PYTHON:-${made:-python3}}" python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

# The environment is good for this place, this Python and these requirements, and for no other.
environment_key() {
  { echo "$PWD $1" && "$1" -V && cat requirements/*.txt pyproject.toml setup/python.sh; } | sha256sum | cut -d' ' -f1
}

# need_environment run|lake|test
need_environment() {
  local python key stamp kind spark warm
  local lists=(-r requirements/run.txt)
  case $1 in
    lake) lists+=(-r requirements/lake.txt) ;;
    test) lists+=(-r requirements/dev.txt) ;;
  esac
  python=$(find_python) || stop 'Python 3.11 or later is missing.' 'Install it, then run this again:' "  $(by_hand python3 python3-venv)"
  key=$(environment_key "$python")
  stamp=.venv/ready-for-$1
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0

  # Debian keeps ensurepip in a package of its own.
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    install "Python's venv module" "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  fi
  if [ "$(cat .venv/made-by 2>/dev/null)" != "$PWD $python" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    working 'making the virtual environment .venv'
    rm -rf .venv
    "$python" -m venv .venv || stop 'The virtual environment could not be made; the reason is above.'
    echo "$PWD $python" >.venv/made-by
  fi
  rm -f .venv/ready-for-*
  if compgen -G '.venv/lib/*/site-packages/pyspark' >/dev/null; then
    working 'installing the Python packages that are still missing (about a minute)'
  else
    working 'installing Python packages (Spark alone is 400 MB: 2 to 5 minutes, the first time)'
  fi
  pinned -r requirements/build.txt
  # Compiling takes one core for a minute, and needs no Spark, which is three quarters of all that is installed. So
  # Spark is installed at the same time as the other packages and the compiled code.
  awk '/^[^ #]/ { is_spark = /^(pyspark|py4j)==/ } !is_spark' requirements/run.txt >.venv/without-spark.txt
  awk '/^[^ #]/ { is_spark = /^(pyspark|py4j)==/ } is_spark' requirements/run.txt >.venv/spark.txt
  pinned --no-build-isolation --no-deps -r .venv/spark.txt &
  spark=$!
  pinned --no-build-isolation -r .venv/without-spark.txt
  pip_install --no-deps --no-build-isolation --editable .
  working 'compiling what decodes the log (a minute or two, the first time); then starting Spark once and keeping what it loads' compiled
  .venv/bin/python -m pidts.batch.compile_ahead &
  warm=$!
  wait "$spark" || exit
  pinned --no-build-isolation "${lists[@]}"
  # Spark's session would load the compiled decoder, and so compile it a second time.
  PIDTS_KERNEL=python .venv/bin/python -m pidts.spark.class_data 2>/dev/null || true
  # Python compiles the tests when they are loaded for the first time; later, the workers would wait for that.
  [ "$1" != test ] || .venv/bin/pytest --collect-only --quiet >/dev/null 2>&1 || true
  wait "$warm" || true
  done_working
  say 'everything is installed'
  for kind in run lake test; do  # each has all of those before it
    echo "$key" >".venv/ready-for-$kind"
    [ "$kind" != "$1" ] || break
  done
}

pinned() { pip_install --require-hashes "$@"; }

pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --progress-bar off "$@" ||
    stop 'The Python packages could not be installed (is there a network?); what pip said is above.' 'Run this again when that is cured: it goes on where it stopped.'
}
