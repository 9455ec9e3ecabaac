#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes the metrics and events of a run on to MLflow.

[metrics]
command = "python3 contrib/mlflow_bridge.py --tracking-uri http://localhost:5000"

job.group is the experiment, and --job-type a tag. Attempts of one run have the same tag trireme_run.
"""
import argparse
import json
import re
import sys

import mlflow

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tracking-uri")
parser.add_argument("--job-type", default="pretrain")
args = parser.parse_args()
if args.tracking_uri:
    mlflow.set_tracking_uri(args.tracking_uri)


def flat(prefix, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(prefix + "." + key if prefix else key, inner)
    elif not isinstance(value, list):
        yield prefix, value


for line in sys.stdin:
    record = json.loads(line)
    kind = record.pop("kind")
    if kind == "run":  # the first line
        mlflow.set_experiment(record["group"] or "trireme")
        mlflow.start_run(run_name=record["name"],
                         tags={"trireme_run": record["run"], "attempt": str(record["attempt"]),
                               "job_type": args.job_type})
        mlflow.log_params(dict(flat("", record["config"])))
    elif "severity" in record:  # an event
        if record["severity"] != "info":
            mlflow.set_tag("last_" + kind, record["text"][:250])
    else:
        values = {re.sub(r"[^\w\-. /]", "_", name): float(value) for name, value in record.items()
                  if name not in ("attempt", "step", "time") and not isinstance(value, (dict, bool))
                  and (not isinstance(value, str) or value in ("NaN", "Infinity", "-Infinity"))}
        mlflow.log_metrics(values, step=record["step"])
mlflow.end_run()
