#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants trouble in real runs and asks `trireme diagnose` for its cause. Needs an idle machine with two cores.
#   tests/blind/run.sh 11:20                 all kinds with seeds 11 to 20 (an hour), and 50 healthy runs
#   tests/blind/run.sh 1:3 'slow rank 20'    one kind
# Prints every answer and a table; exit code 1: below the bar. The folder build/cpu may be another: BUILD=build/release.
set -eu
cd "$(dirname "$0")/../.."
seeds=${1:?give the seeds, such as 11:20}
program=${BUILD:-build/cpu}/tests/blind/blind_run
if [ ! -x "$program" ]; then
  echo "$program is missing: cmake --build ${BUILD:-build/cpu} --target blind_run" >&2
  exit 2
fi
if [ $# -gt 1 ]; then
  exec "$program" "$seeds" "$2"
fi
status=0
for kind in slow stage data host throttled needless memory dead stale other; do
  "$program" "$seeds" "$kind" || status=1
done
first=${seeds%:*}
"$program" "$first:$((first + 49))" healthy || status=1
exit $status
