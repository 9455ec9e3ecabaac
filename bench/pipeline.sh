#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares pipelines with the simulator (bench/pipeline.cpp): every schedule that the engine executes. The first argument
# is the number of ranks (2), each of which needs an idle core. Extra arguments go to every run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stages=${1:-2}
shift || true
cmake --build "$root/build/release" --target pipeline >/dev/null
for schedule in "1f1b" "gpipe" "interleaved --chunks=2" "zb-h1" "zb-h2" "zb-v" "dualpipev"; do
  read -ra words <<<"--schedule=$schedule"
  "$root/build/release/bench/pipeline" "${words[@]}" --stages="$stages" "$@" | tail -n 1
done
