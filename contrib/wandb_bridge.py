#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes the metrics and events of a run on to Weights & Biases.

[metrics]
command = "python3 contrib/wandb_bridge.py --project my-project"

job.group is the group, and --job-type the type of the job. A resumed run continues the same run of
wandb, because both have the same id.
"""
import argparse
import json
import sys

import wandb

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--project", default="trireme")
parser.add_argument("--entity")
parser.add_argument("--job-type", default="pretrain")
args = parser.parse_args()

run = None
for line in sys.stdin:
    record = json.loads(line)
    kind = record.pop("kind")
    if kind == "run":  # the first line
        run = wandb.init(project=args.project, entity=args.entity, job_type=args.job_type,
                         id=record["run"], resume="allow", name=record["name"],
                         group=record["group"] or None, config=record["config"])
        # Lines of checkpoints name a step before the current one.
        run.define_metric("trainer/step")
        run.define_metric("*", step_metric="trainer/step")
    elif "severity" in record:  # an event
        if record["severity"] != "info":
            run.alert(title=kind, text=record["text"])
    else:
        values = {name: float(value) for name, value in record.items()
                  if name not in ("attempt", "step", "time") and not isinstance(value, (dict, bool))
                  and (not isinstance(value, str) or value in ("NaN", "Infinity", "-Infinity"))}
        values["trainer/step"] = record["step"]
        run.log(values)
if run is not None:
    run.finish()
