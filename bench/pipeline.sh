#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does a pipeline take as long as the simulator says (bench/pipeline.cpp)? Every schedule that is executed, on as many
# ranks as the first word says (2); wants a machine with an idle core for each. Extra words go to every run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stages=${1:-2}
shift || true
cmake --build "$root/build/release" --target pipeline >/dev/null
for schedule in "1f1b" "gpipe" "interleaved --chunks=2" "zb-h1" "zb-h2" "zb-v" "dualpipev"; do
  read -ra words <<<"--schedule=$schedule"
  "$root/build/release/bench/pipeline" "${words[@]}" --stages="$stages" "$@" | tail -n 1
done
