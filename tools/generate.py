"""Write the files that are made from the code: the chart's CRD and the reference pages.

usage: generate.py [--check]     (--check: exit with 1 and name the files that differ, and write nothing)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml
from bench_page import bench_page
from grpo_api.crd import custom_resource_definition
from grpo_api.reference_page import reference_page
from grpo_operator import reasons

ROOT = Path(__file__).resolve().parent.parent


def crd_template() -> str:
    """Return the chart's template: the CRD, kept when the chart is uninstalled, left out with crds.install false."""
    crd = custom_resource_definition()
    crd["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    text = yaml.safe_dump(crd, sort_keys=False, allow_unicode=True, width=1000)
    if "{{" in text:
        raise ValueError("the CRD holds '{{', which helm would take for a template")
    return (
        "{{- /* Made by tools/generate.py from the models in api/grpo_api/v1alpha1. */ -}}\n"
        f"{{{{- if .Values.crds.install }}}}\n{text}{{{{- end }}}}\n"
    )


STATUS_INTRODUCTION = """\
<!-- Made by tools/generate.py from operator/grpo_operator/reasons.py. -->
# Status and troubleshooting

`kubectl get grpo` shows the phase and a reason; `kubectl describe grpo NAME` adds the sentence, the conditions and the
events.

| phase | meaning |
|---|---|
| Pending | accepted, nothing runs yet: something the spec names is missing, or the API server refuses a child |
| Starting | the reference server or the trainer's pods are on their way up |
| Running | the trainer works |
| Restarting | an attempt has ended; the next one comes |
| Suspended | `spec.suspend` is set |
| Succeeded | the target step is reached; `status.modelPath` says where the model lies |
| Failed | it ended for good; `status.message` says why |

| condition | True when |
|---|---|
| Accepted | the spec can be worked with, and all it names is there |
| ReferenceReady | the reference server answers (or none is needed: reason `NotRequired`) |
| TrainerReady | all pods of the present attempt run |
| Suspended | nothing runs because of `spec.suspend` |
| Succeeded, Failed | the job has ended; never taken back |

`status.restarts` counts new attempts after crashes (`failurePolicy.maxRestarts` is the limit), `status.disruptions`
those after evictions, preemptions and lost nodes, which have no limit. `status.progress` is at most 15 seconds old.

Every rank's output is in the volume, also of pods that are gone: `<volume>/<job>/<uid>/logs/`.

## Reasons

"""


def files() -> dict[str, str]:
    """Return every generated file and its text."""
    figures = ROOT / "tests/bench/results/reference.json"
    measured = {"docs/reference-benchmark.md": bench_page(figures)} if figures.exists() else {}
    return measured | {
        "charts/grpo/templates/crd.yaml": crd_template(),
        "docs/grpojob.md": reference_page(),
        "docs/status.md": STATUS_INTRODUCTION + reasons.markdown().rstrip() + "\n",
    }


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    different = []
    for name, text in files().items():
        path = ROOT / name
        if path.exists() and path.read_text() == text:
            continue
        different.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in different:
        print(f"{name}: {'differs from the code: run make generate' if check else 'written'}")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
