#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads flight records with PyTorch's analyser and checks which ranks it names.

  check_flight_records.py FOLDER --missing 2 [--stopped 2]

FOLDER is `flight` of a run that ended because a rank did not enter a call. --missing are ranks that the
analyser has to name, and of stopped ranks the only ones; --stopped those that could write no record
(killed or stopped). Needs PyTorch
2.9 or later, on any machine: records may be carried there from where the ranks ran.
"""
import argparse
import contextlib
import io
import json
import logging
import pathlib
import pickle
import re
import sys


def analyse(folder, stopped):
    from torch.distributed.flight_recorder import fr_trace

    text = io.StringIO()
    logging.getLogger("Flight Recorder").addHandler(logging.StreamHandler(text))
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        fr_trace.main([str(folder)] + (["--allow-incomplete-ranks"] if stopped else []))
    return text.getvalue()


def named_ranks(text):
    """Returns all ranks that the analyser reports: a rank that skips a call is missing in it, and
    waits in the next one for ranks that are missing there."""
    found = re.findall(r"missing ranks: \{([^}]*)\}", text)
    found += re.findall(r"missed FR dumps from ranks \(\{([^}]*)\}\)", text)
    return sorted({int(rank) for ranks in found for rank in ranks.split(",")})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--missing", type=int, nargs="+", required=True)
    parser.add_argument("--stopped", type=int, nargs="*", default=[])
    args = parser.parse_args()
    dumps = sorted(args.folder.glob("_dump_*"))
    if not dumps:
        sys.exit(f"{args.folder}: no files named _dump_RANK")
    for dump in dumps:
        rank = dump.name.rsplit("_", 1)[1]
        with open(dump, "rb") as pickled, open(args.folder / f"rank_{rank}.json") as text:
            if pickle.load(pickled) != json.load(text):
                sys.exit(f"{dump}: differs from rank_{rank}.json")
    text = analyse(args.folder, args.stopped)
    print(text)
    named = named_ranks(text)
    if not set(args.missing) <= set(named) or (args.stopped and named != sorted(args.missing)):
        sys.exit(f"FAILED: the analyser names {named}, not {sorted(args.missing)}")
    print(f"OK: {len(dumps)} records; the analyser names {named}")


if __name__ == "__main__":
    main()
