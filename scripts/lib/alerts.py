"""Tries out the alert rules with promtool. Usage: alerts.py PROMTOOL RULE TESTS METRICS: a PrometheusRule, the table of
what fires when beside it, and config/metrics.md. Exits 1 with one line per fault."""

import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

# What stands in an expression and is no metric.
WORDS = {"increase", "max_over_time", "reason", "kind", "partition", "actor", "in_doubt", "blocked", "cookie", "certificate"}


def rules_of(document):
    return {rule["alert"]: rule for group in document["spec"]["groups"] for rule in group["rules"]}


def coverage_faults(rules, cases, metrics):
    known = set(re.findall(r"^\| `(\w+)`", metrics, re.M))
    for name, rule in rules.items():
        kinds = {kind.split("_")[0] for kind in cases.get(name, {})}
        for missing in {"fires", "quiet"} - kinds:
            yield f"{name} has no case under {missing}"
        named = set(re.findall(r"[a-z_]{8,}", re.sub(r"\{[^}]*\}", "", rule["expr"]))) - WORDS
        for metric in named - known:
            yield f"{name}: {metric} is not in the table of metrics"
        if not rule.get("annotations", {}).get("summary"):
            yield f"{name} has no summary"
        if rule.get("labels", {}).get("severity") not in {"warning", "critical"}:
            yield f"{name} has no severity"
    for name, kinds in cases.items():
        for kind, case in kinds.items():
            # YAML takes 0x20 for a number.
            for series in (series for series, values in case["series"].items() if not isinstance(values, str)):
                yield f"{name} {kind}: the values of {series} need quotes"
    for name in cases.keys() - rules.keys():
        yield f"{name} is tested and is no rule"


def test_of(name, kind, case, rule):
    expected = {"exp_labels": {**rule["labels"], **case.get("labels", {})}, "exp_annotations": rule["annotations"]}
    return {
        "name": f"{name} {kind}",
        "interval": "30s",
        "input_series": [{"series": series, "values": values} for series, values in case["series"].items()],
        "alert_rule_test": [
            {
                "alertname": name,
                "eval_time": case["at"],
                "exp_alerts": [expected] if kind.startswith("fires") else [],
            }
        ],
    }


def promtool(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}".strip()


def main(program, rule_file, test_file, metrics_file):
    document = yaml.safe_load(pathlib.Path(rule_file).read_text())
    cases = yaml.safe_load(pathlib.Path(test_file).read_text())
    rules = rules_of(document)
    faults = list(coverage_faults(rules, cases, pathlib.Path(metrics_file).read_text()))
    tests = [
        test_of(name, kind, case, rules[name])
        for name, kinds in cases.items()
        if name in rules
        for kind, case in kinds.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules.yaml").write_text(yaml.safe_dump(document["spec"]))
        every = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": tests}
        (folder / "tests.yaml").write_text(yaml.safe_dump(every))
        faults += filter(None, [promtool(program, "check", "rules", str(folder / "rules.yaml"))])
        faults += filter(None, [promtool(program, "test", "rules", str(folder / "tests.yaml"))])
    for fault in faults:
        print(fault)
    print(f"{len(rules)} alert rules, {len(tests)} cases: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
