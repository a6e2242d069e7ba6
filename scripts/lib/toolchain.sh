# Sourced, after say.sh, with ROOT set. Finds cargo, a home for its downloads and a folder to build in.
#
# cargo on the search path is often a proxy of rustup that looks for its toolchains under HOME. Under another HOME (a
# fresh one, or another user's) it finds none, though they are there: then they are looked for beside the proxy, and
# used without writing to them.

# Prints the homes whose .rustup may hold toolchains.
toolchain_homes() {
  local cargo dir
  echo "${HOME:-}"
  while read -r cargo; do
    dir=$(dirname "$cargo")
    case $dir in */.cargo/bin) dirname "$(dirname "$dir")" ;; esac
  done <<<"$(type -aP cargo 2>/dev/null)"
  getent passwd root 2>/dev/null | cut -d: -f6
}

# Puts the programs of a toolchain at least as new as Cargo.toml asks for first on PATH; the pinned one if it is there.
use_toolchain_of() {
  local home=$1 pinned needed bin version
  pinned=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$ROOT/rust-toolchain.toml")
  needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$ROOT/Cargo.toml")
  for bin in "$home"/.rustup/toolchains/"$pinned"-*/bin "$home"/.rustup/toolchains/*/bin; do
    [ -x "$bin/cargo" ] && [ -x "$bin/rustc" ] || continue
    version=$("$bin/rustc" --version 2>/dev/null | cut -d' ' -f2) || continue
    [ "$(printf '%s\n' "$needed" "$version" | sort -V | head -1)" = "$needed" ] || continue
    PATH=$bin:$PATH
    return 0
  done
  return 1
}

# True if the directory can be written to, or made.
can_make() { mkdir -p "$1" 2>/dev/null && [ -w "$1" ]; }

# Sets PATH, CARGO_HOME and CARGO_TARGET_DIR; false if there is no toolchain.
find_toolchain() {
  local home
  CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}
  can_make "$CARGO_TARGET_DIR" || CARGO_TARGET_DIR=${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/railyard/target
  can_make "$CARGO_TARGET_DIR" || CARGO_TARGET_DIR=${TMPDIR:-/tmp}/railyard-target-$(id -u)
  can_make "$CARGO_TARGET_DIR" || die "no folder to build in: neither the checkout nor HOME nor the temporary folder can be written to"
  export CARGO_TARGET_DIR
  CARGO_HOME=${CARGO_HOME:-${HOME:-/nowhere}/.cargo}
  can_make "$CARGO_HOME" || CARGO_HOME=$CARGO_TARGET_DIR/cargo-home
  mkdir -p "$CARGO_HOME"
  export CARGO_HOME
  (cd "$ROOT" && cargo --version >/dev/null 2>&1 && rustc --version >/dev/null 2>&1) && return 0
  while read -r home; do
    if [ -n "$home" ] && use_toolchain_of "$home"; then
      export PATH
      return 0
    fi
  done <<<"$(toolchain_homes)"
  return 1
}

NO_TOOLCHAIN="no Rust toolchain can be used here. Install one for this user (rustup, with the version that
rust-toolchain.toml names; with a C compiler and linker), or let this user read the one that is installed"

# Links need a C compiler. As root the package manager brings one.
ensure_c_compiler() {
  command -v cc >/dev/null && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "no C compiler: installing gcc"
    apt_install gcc libc6-dev
  else
    die "no C compiler (cc) on the search path; Debian and Ubuntu: apt-get install gcc libc6-dev"
  fi
}

# The tests with a wrong clock need libfaketime; without it they say that they were skipped.
ensure_faketime() {
  compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "no libfaketime: installing it"
    (apt_install faketime) || say "no libfaketime to be had: tests with a wrong clock are skipped"
  else
    say "no libfaketime: tests with a wrong clock are skipped"
  fi
}

# Quietly, once updated; what it said is shown only if it failed.
apt_install() {
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
    tail -20 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: $*"
  fi
  rm -f "$log"
}
