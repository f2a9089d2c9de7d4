#!/bin/bash
# prepare.sh run|lake|test: sets up everything that ./demo, ./demo --target iceberg or ./test needs. What is already
# set up is kept, so a second run takes no time. Of two runs at once, the second waits for the first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(uname -s)" = Linux ] || { echo 'setup: this needs Linux (Debian or Ubuntu).' >&2; exit 1; }

. setup/say.sh
. setup/packages.sh
. setup/python.sh
. setup/servers.sh

exec 9<setup
flock --nonblock 9 || { working 'another setup runs in this folder: waiting for it'; flock 9; done_working; }

[ -e ".venv/ready-for-$1" ] || say 'this installs what is missing, once: 6 minutes or more, 1.5 GB'
need_setpriv
need_java
need_mariadb
need_postgres
need_environment "$1"
# Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each process would compile PiDTS's code again at its start.
.venv/bin/python -m compileall -q src
if [ "$1" = test ]; then
  need_mariadb_binlog
  need_pt_online_schema_change
  need_chromium
  need_server mysql97 "${MYSQL97_ROOT:-/opt/mysql97}"
  need_server mariadb_plugins "${MARIADB_PLUGINS:-/opt/mariadb-plugins}"
  need_server mysql56 "${MYSQL56_ROOT:-/opt/mysql56}"
fi
done_working
