# shellcheck shell=bash
# Prints setup's messages, and runs commands as root. Sourced by the other scripts.

say() { printf '%s\n' "setup: $*" >&2; }

stop() {
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
