# shellcheck shell=bash
# Prints setup's messages and its progress, and runs commands as root. Sourced by the other scripts.

progress_seconds=10

exec 8>&2  # some callers discard what a program says on stderr, but not what setup itself says

say() { printf '%s\n' "setup: $*" >&8; }

installed() { echo ".venv has $(du -sm .venv 2>/dev/null | cut -f1 || true) MB"; }

compiled() { echo "$(installed); $(.venv/bin/python -I src/pidts/binlog/machine_code.py || true)"; }

# working WHAT [FIGURE]: prints what setup does now, and every few seconds for how long, until `done_working` or another
# WHAT. FIGURE prints how far it is; by default it is `installed`.
working() {
  done_working
  say "$1"
  local began=$SECONDS figure=${2:-installed}
  # The subshell must not keep the lock of setup (9), and ends with the script, which is its parent.
  (
    while sleep "$progress_seconds" >/dev/null 2>&1 8>&1; do
      read -r _ _ _ parent _ <"/proc/$BASHPID/stat"
      [ "$parent" = $$ ] || break
      say "  still working: $((SECONDS - began)) s; $("$figure")"
    done
  ) 9>&- &
  ticker=$!
}

done_working() {
  [ -n "${ticker:-}" ] || return 0
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  ticker=
}

stop() {
  done_working
  printf '\nsetup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# as_root COMMAND...: runs the command as root: directly if the user is root, otherwise with sudo, without a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}
