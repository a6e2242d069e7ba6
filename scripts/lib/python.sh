# Sourced, after say.sh and toolchain.sh. Python packages that the tests need, each set in an environment of its own under
# the target folder, pinned by a requirements file.

# ensure_venv NAME REQUIREMENTS: sets VENV; false if it cannot be made. Made anew when the requirements have changed.
ensure_venv() {
  local name=$1 requirements=$2
  VENV=$CARGO_TARGET_DIR/venv/$name
  cmp -s "$requirements" "$VENV/requirements.txt" && [ -x "$VENV/bin/python" ] && return 0
  say "bringing $name"
  rm -rf "$VENV"
  mkdir -p "$(dirname "$VENV")"
  # Debian keeps venv in a package of its own.
  if ! python3 -m venv "$VENV" >/dev/null 2>&1; then
    rm -rf "$VENV"
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    (apt_install python3-venv) || return 1
    python3 -m venv "$VENV" || return 1
  fi
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" >&2 || return 1
  cp "$requirements" "$VENV/requirements.txt"
}
