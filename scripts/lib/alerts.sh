# Sourced, after manifests.sh. Tries out the alert rules with promtool, which is taken out of the distribution's package
# without installing it: that would start a server.

# Sets PROMTOOL.
bring_promtool() {
  PROMTOOL=$(command -v promtool) && return 0
  local dir=$CARGO_TARGET_DIR/promtool
  PROMTOOL=$dir/usr/bin/promtool
  [ -x "$PROMTOOL" ] && return 0
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
  say "fetching promtool"
  rm -rf "$dir" && mkdir -p "$dir"
  fetch_prometheus "$dir" || { [ "$(id -u)" = 0 ] && apt-get -qq update && fetch_prometheus "$dir"; } || return 1
  dpkg-deb --fsys-tarfile "$dir"/*.deb | tar -x -C "$dir" ./usr/bin/promtool || return 1
  rm -f "$dir"/*.deb
}

fetch_prometheus() { (cd "$1" && apt-get -qq download prometheus) >/dev/null 2>&1; }

check_alerts() {
  if ! { python3 -m pip --version >/dev/null 2>&1 && bring_promtool && bring_schemas; }; then
    say "skipped: no promtool to be had"
    return 0
  fi
  local monitoring=k8s/components/monitoring
  PYTHONPATH=$SCHEMAS PYTHONDONTWRITEBYTECODE=1 python3 scripts/lib/alerts.py \
    "$PROMTOOL" $monitoring/prometheusrule.yaml $monitoring/alerts.test.yaml config/metrics.md
}
