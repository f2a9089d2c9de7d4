# shellcheck shell=bash
# Installs system packages, and only those that are missing. Sourced by prepare.sh.
# Nothing here starts a service: only MariaDB's programs are installed, and no PostgreSQL cluster is created.

lists_are_fresh=no

# missing PACKAGE...: prints these and every other required system package that is not installed, so that one
# installation by hand is enough.
missing() {
  {
    printf '%s\n' "$@"
    has_java || echo default-jre-headless
    has_mariadb || echo mariadb-server
    has_postgres || echo postgresql
  } | sort -u | paste -sd ' '
}

# by_hand PACKAGE...: prints the command with which a person would install them.
by_hand() { echo "sudo apt-get update && sudo apt-get install $(missing "$@")"; }

# try_install PACKAGE...: returns a failure instead of ending setup, for callers with an alternative.
try_install() {
  command -v apt-get >/dev/null && can_be_root || return 1
  working "installing $* (apt-get; once)"
  if [ "$lists_are_fresh" = no ]; then
    as_root apt-get update -qq >&2 || return 1
    lists_are_fresh=yes
  fi
  as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "$@" >/dev/null
}

# install WHAT PACKAGE...: on failure, ends setup and prints how to install WHAT by hand.
install() {
  local what=$1
  shift
  command -v apt-get >/dev/null ||
    stop "$what is missing, and this is neither Debian nor Ubuntu." "Install it the way your system does (Debian's packages: $(missing "$@")), then run this again."
  can_be_root ||
    stop "$what is missing, and installing it needs root (or a sudo that asks no password)." "Install it, then run this again:" "  $(by_hand "$@")"
  try_install "$@" ||
    stop "$what could not be installed (is there a network?). What apt-get said is above." "Install it, then run this again:" "  $(by_hand "$@")"
}

java_version() {
  local java=java
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'
}

has_java() {
  local version
  version=$(java_version) || true
  [ "${version:-0}" -ge 17 ]
}

need_java() {
  ! has_java || return 0
  [ -z "${JAVA_HOME:-}" ] || stop "JAVA_HOME ($JAVA_HOME) has no Java 17 or later." "Point it to one, or unset it."
  install 'Java 17 or later' default-jre-headless
  has_java || stop 'The Java that this system brings is older than 17, which Spark needs.' 'Install a newer one, put it first on the PATH, then run this again.'
}

has_mariadb() {
  local PATH=$PATH:/usr/sbin
  command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null
}

# The …-core packages contain the programs without a service; some systems have only the complete package.
need_mariadb() {
  ! has_mariadb || return 0
  try_install mariadb-server-core mariadb-client-core 2>/dev/null && has_mariadb ||
    RUNLEVEL=1 install 'MariaDB' mariadb-server
  has_mariadb || stop 'MariaDB is installed, but its programs mariadbd and mariadb-install-db are not there.'
}

# A test reads PiDTS's relay with mariadb-binlog, and a benchmark compares it with PiDTS's decoder.
need_mariadb_binlog() {
  command -v mariadb-binlog >/dev/null || install 'mariadb-binlog' mariadb-client
}

# A test alters source tables with pt-online-schema-change; the package brings Perl and its database driver.
need_pt_online_schema_change() {
  command -v pt-online-schema-change >/dev/null || try_install percona-toolkit || {
    [ "${CI:-}" != true ] || stop 'percona-toolkit could not be installed; in CI it must be there.'
    say '* percona-toolkit could not be installed: the tests with pt-online-schema-change will be SKIPPED.'
  }
}

# A headless browser and its driver, with which tests open the service's page.
need_chromium() {
  command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
  try_install chromium chromium-driver && command -v chromium >/dev/null && command -v chromedriver >/dev/null || {
    [ "${CI:-}" != true ] || stop 'chromium and chromium-driver could not be installed; in CI they must be there.'
    say '* chromium and chromium-driver could not be installed: the tests of the page in a browser will be SKIPPED.'
  }
}

has_postgres() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
    { command -v initdb >/dev/null && command -v postgres >/dev/null; }
}

# Debian creates and starts a cluster as soon as PostgreSQL is installed, unless a setting forbids it. The setting is
# restored afterwards, so that a later installation creates a cluster as usual.
need_postgres() {
  local settings=/etc/postgresql-common/createcluster.conf
  ! has_postgres || return 0
  [ -e "$settings" ] || install 'PostgreSQL' postgresql-common
  as_root cp -p "$settings" "$settings.before-pidts"
  trap 'as_root mv "'"$settings"'.before-pidts" "'"$settings"'"' EXIT
  printf 'create_main_cluster = false\n' | as_root tee "$settings" >/dev/null
  install 'PostgreSQL' postgresql
  as_root mv "$settings.before-pidts" "$settings"
  trap - EXIT
  has_postgres || stop 'PostgreSQL is installed, but its program initdb is not there.'
}

need_setpriv() {
  command -v setpriv >/dev/null || install 'setpriv' util-linux
}
