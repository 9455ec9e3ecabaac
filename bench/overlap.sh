#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much communication hides behind compute (bench/overlap.cpp): ZeRO-3 and data parallel, first the order of the
# engine alone, with compute that sleeps, then real compute, which needs two idle cores.
# Extra arguments go to every run (--share=0.7, --rounds=11).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cmake --build "$root/build/release" --target overlap >/dev/null
overlap=$root/build/release/bench/overlap
for run in "--mode=zero3 --share=0.75" "--mode=ddp --share=0.6"; do
  read -ra words <<<"$run"
  "$overlap" "${words[@]}" --compute=sleep --hidden=64 --tokens=32 "$@"
  "$overlap" "${words[@]}" "$@"
done
