# shellcheck shell=bash
# Setup's messages, and running commands as root. Sourced by the other scripts.

say() { printf '%s\n' "setup: $*" >&2; }

stop() {
  printf '\nsetup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# as_root COMMAND...: runs it directly if already root, otherwise with sudo, which must not ask for a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}
