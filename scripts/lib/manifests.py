"""Looks at the Kubernetes manifests: renders every target, holds it to the schemas of two Kubernetes versions, and checks
what schemas do not see. Usage: manifests.py KUBECTL FOLDER; exits 1 with one line per fault."""

import base64
import pathlib
import re
import subprocess
import sys
import tomllib

import kubernetes_validate
import yaml

VERSIONS = ["1.31", "1.37"]
TARGETS = ["base", "migrate", "overlays/staging", "overlays/production", "overlays/autoscaled"]
# Kinds that another project defines: no Kubernetes schema knows them.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}


def render(kubectl, folder):
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"{folder}: {done.stderr}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def schema_faults(documents):
    for document in documents:
        if document["kind"] in FOREIGN:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                yield f"{document['kind']} {document['metadata']['name']}, Kubernetes {version}: {error}"


class Cluster:
    """The documents of one target by kind."""

    def __init__(self, documents, example, served):
        self.documents = documents
        self.served = served
        self.workload = self.one("StatefulSet")
        self.pod = self.workload["spec"]["template"]
        self.container = self.pod["spec"]["containers"][0]
        self.labels = self.pod["metadata"]["labels"]
        self.secret_keys = set(example["stringData"])

    def all(self, kind):
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind):
        found = self.all(kind)
        if len(found) != 1:
            raise SystemExit(f"{len(found)} documents of kind {kind}")
        return found[0]

    def faults(self):
        yield from self.selectors()
        yield from self.ports()
        yield from self.network()
        yield from self.times()
        yield from self.references()
        yield from self.rights()
        yield from self.scaling()

    def selects(self, labels):
        return bool(labels) and labels.items() <= self.labels.items()

    def selectors(self):
        if not self.selects(self.workload["spec"]["selector"]["matchLabels"]):
            yield "the StatefulSet does not select its own pods"
        if not self.all("Service"):
            yield "there is no Service"
        for service in self.all("Service"):
            if not self.selects(service["spec"].get("selector")):
                yield f"Service {service['metadata']['name']} selects no pod"
        headless = self.workload["spec"]["serviceName"]
        named = [s for s in self.all("Service") if s["metadata"]["name"] == headless]
        if not named or named[0]["spec"].get("clusterIP") != "None":
            yield f"serviceName {headless} names no headless Service"
        budget = self.one("PodDisruptionBudget")["spec"]
        if not self.selects(budget["selector"]["matchLabels"]):
            yield "the PodDisruptionBudget covers no pod"
        if budget.get("maxUnavailable", 0) < 1 or "minAvailable" in budget:
            yield "the PodDisruptionBudget would let no node be drained when there is one replica"
        for spread in self.pod["spec"].get("topologySpreadConstraints", []):
            if not self.selects(spread["labelSelector"]["matchLabels"]):
                yield "a topologySpreadConstraint counts no pod"

    def ports(self):
        names = {port["name"] for port in self.container["ports"]}
        for service in self.all("Service"):
            for port in service["spec"]["ports"]:
                if port["targetPort"] not in names:
                    yield f"Service {service['metadata']['name']}: no port is named {port['targetPort']}"
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
            if probe not in self.container:
                yield f"there is no {probe}"
            elif self.container[probe]["httpGet"]["port"] not in names:
                yield f"{probe} asks a port that has no such name"
        for monitor in self.all("ServiceMonitor"):
            if not any(
                monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"].get("labels", {}).items()
                for service in self.all("Service")
            ):
                yield "the ServiceMonitor selects no Service"
            for endpoint in monitor["spec"]["endpoints"]:
                known = {port["name"] for service in self.all("Service") for port in service["spec"]["ports"]}
                if endpoint["port"] not in known:
                    yield f"the ServiceMonitor scrapes a port {endpoint['port']} that no Service has"

    def network(self):
        policy = self.one("NetworkPolicy")["spec"]
        if not self.selects(policy["podSelector"]["matchLabels"]):
            yield "the NetworkPolicy covers no pod"
        allowed = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
        for need, why in [(53, "names"), (5432, "PostgreSQL"), (443, "receivers")]:
            if need not in allowed:
                yield f"the NetworkPolicy lets nothing out to port {need} ({why})"
        let_in = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        for port in self.container["ports"]:
            if port["name"] not in let_in and port["containerPort"] not in let_in:
                yield f"the NetworkPolicy lets nobody in to port {port['name']}"

    def config(self):
        maps = [m for m in self.all("ConfigMap") if "railyard.toml" in m.get("data", {})]
        return tomllib.loads(maps[0]["data"]["railyard.toml"])

    def times(self):
        grace = self.config()["node"]["grace_s"]
        stop = self.container["lifecycle"]["preStop"]["exec"]["command"]
        waits = int(stop[-1])
        if self.pod["spec"]["terminationGracePeriodSeconds"] < grace + waits + 5:
            yield "terminationGracePeriodSeconds is shorter than preStop and node.grace_s"
        if self.workload["spec"]["podManagementPolicy"] != "Parallel":
            yield "podManagementPolicy is not Parallel: a node that does not get ready would hold up the others"

    def references(self):
        volumes = {volume["name"]: volume for volume in self.pod["spec"]["volumes"]}
        for mount in self.container["volumeMounts"]:
            if mount["name"] not in volumes:
                yield f"there is no volume {mount['name']}"
        maps = {document["metadata"]["name"] for document in self.all("ConfigMap")}
        for volume in volumes.values():
            if "configMap" in volume and volume["configMap"]["name"] not in maps:
                yield f"there is no ConfigMap {volume['configMap']['name']}"
            for item in volume.get("secret", {}).get("items", []):
                yield from self.secret_key(item["key"])
        known = set()
        for variable in self.container["env"]:
            for used in re.findall(r"\$\((\w+)\)", variable.get("value", "")):
                if used not in known:
                    yield f"{variable['name']} uses {used}, which is not set before it"
            known.add(variable["name"])
            source = variable.get("valueFrom", {}).get("secretKeyRef")
            if source:
                yield from self.secret_key(source["key"])
        for key in self.config()["secrets"]["master_keys"]:
            mounted = [m["mountPath"] for m in self.container["volumeMounts"]]
            if str(pathlib.PurePosixPath(key["key_file"]).parent) not in mounted:
                yield f"{key['key_file']} is mounted nowhere"
        accounts = {document["metadata"]["name"] for document in self.all("ServiceAccount")}
        if self.pod["spec"]["serviceAccountName"] not in accounts:
            yield "there is no such ServiceAccount"

    def scaling(self):
        for scaler in self.all("HorizontalPodAutoscaler"):
            target, name = scaler["spec"]["scaleTargetRef"], self.workload["metadata"]["name"]
            if (target["kind"], target["name"]) != ("StatefulSet", name):
                yield "the HorizontalPodAutoscaler scales something else"
            if "replicas" in self.workload["spec"]:
                yield "the StatefulSet names replicas: to apply it would undo what the autoscaler decided"
            for metric in scaler["spec"]["metrics"]:
                if metric["external"]["metric"]["name"] not in self.served:
                    yield f"adapter.example.yaml serves no {metric['external']['metric']['name']}"

    def secret_key(self, key):
        if key not in self.secret_keys:
            yield f"secret.example.yaml does not tell of the key {key}"

    def rights(self):
        security = self.container["securityContext"]
        if not self.pod["spec"]["securityContext"].get("runAsNonRoot") or security.get("allowPrivilegeEscalation") is not False:
            yield "the pod may run as root"
        if security.get("capabilities", {}).get("drop") != ["ALL"] or not security.get("readOnlyRootFilesystem"):
            yield "the container keeps capabilities or a writable file system"
        if self.pod["spec"].get("automountServiceAccountToken") is not False:
            yield "the pod is given a token of the Kubernetes API"
        if "memory" not in self.container["resources"].get("limits", {}):
            yield "the container's memory has no limit"


def served_metrics(folder, faults):
    """The names under which the adapter serves metrics; what it asks for has to be in the table of metrics."""
    rules = yaml.safe_load((folder / "components/autoscaling/adapter.example.yaml").read_text())["externalRules"]
    known = set(re.findall(r"^\| `(\w+)`", (folder.parent / "config/metrics.md").read_text(), re.M))
    for rule in rules:
        asked = re.findall(r"(\w+)\{<<", rule["metricsQuery"])
        faults += [f"adapter.example.yaml: {name} is not in the table of metrics" for name in asked if name not in known]
        if not asked or asked[0] not in rule["seriesQuery"]:
            faults.append("adapter.example.yaml: the query is for another series than the rule")
    return {rule["name"]["as"] for rule in rules}


def image_faults(root, pod):
    """The Dockerfile against what it builds and who runs it."""
    text = (root / "k8s/Dockerfile").read_text()
    channel = tomllib.loads((root / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    if f"FROM rust:{channel}-" not in text:
        yield f"it does not build with Rust {channel}, which rust-toolchain.toml names"
    lines = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    copied = {source for line in lines for source in line}
    ignored = set((root / ".dockerignore").read_text().split())
    needed = {"Cargo.toml", "Cargo.lock"}
    needed |= {member.split("/")[0] for member in tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["members"]}
    yield from (f"it does not copy {name}" for name in sorted(needed - copied))
    yield from (f"it copies {name}, which .dockerignore leaves out" for name in sorted(copied & ignored))
    for source in [*root.glob("crates/**/*.rs"), *root.glob("tests/**/*.rs")]:
        for path in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text()):
            inside = (source.parent / path).resolve().relative_to(root.resolve()).parts[0]
            if inside not in copied:
                yield f"{source.relative_to(root)} includes {path}, which is not copied"
    user = re.search(r"^USER (\d+):(\d+)$", text, re.M)
    security = pod["spec"]["securityContext"]
    if not user or [int(id) for id in user.groups()] != [security["runAsUser"], security["runAsGroup"]]:
        yield "its USER is not the one that the pod runs as"
    container = pod["spec"]["containers"][0]
    if not re.search(rf"^EXPOSE {container['ports'][0]['containerPort']}$", text, re.M):
        yield "it exposes another port than the pod's"
    if f"CMD {container['args']}".replace("'", '"') not in text:
        yield "its CMD is not what the pod runs"


def main(kubectl, folder):
    folder = pathlib.Path(folder)
    example = yaml.safe_load((folder / "base" / "secret.example.yaml").read_text())
    if len(base64.b64decode(example["stringData"]["master-key"])) != 32:
        print("secret.example.yaml: the master key is not 32 bytes")
        return 1
    faults = list(schema_faults([example]))
    served = served_metrics(folder, faults)
    for target in TARGETS:
        documents = render(kubectl, folder / target)
        faults += [f"{target}: {fault}" for fault in schema_faults(documents)]
        if any(document["kind"] == "StatefulSet" for document in documents):
            cluster = Cluster(documents, example, served)
            faults += [f"{target}: {fault}" for fault in cluster.faults()]
            if target == "base":
                faults += [f"Dockerfile: {fault}" for fault in image_faults(folder.resolve().parent, cluster.pod)]
    for fault in faults:
        print(fault)
    print(f"{len(TARGETS)} targets, Kubernetes {' and '.join(VERSIONS)}: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
