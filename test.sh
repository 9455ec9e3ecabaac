#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Trireme and runs its tests, from a bare clone.
#   ./test.sh          the suite that every change must pass (budget: docs/testing.md)
#   ./test.sh --full   also what the default run only samples, and everything under AddressSanitizer + UndefinedBehaviorSanitizer and under ThreadSanitizer
set -euo pipefail
cd "$(dirname "$0")"
. scripts/packages.sh
full=0

for argument in "$@"; do
  case "$argument" in
    --full) full=1 ;;
    -h | --help) sed -n '3,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; known are --full and --help" >&2; exit 2 ;;
  esac
done

install_packages "${build_packages[@]}" "${test_packages[@]}"
build release
echo "== testing release"
ctest --preset release -j "$(nproc)"

# The arithmetic of shards is where a wrong index would corrupt a checkpoint: always under the sanitizers too.
build shards spec_test
echo "== testing shards under asan"
shares=()
for ((share = 0; share < $(nproc); ++share)); do
  GTEST_TOTAL_SHARDS=$(nproc) GTEST_SHARD_INDEX=$share ./build/shards/spec_test --gtest_brief=1 &
  shares+=($!)
done
for share in "${shares[@]}"; do wait "$share"; done

if [ "$full" -eq 1 ]; then
  echo "== testing every layout of up to eight ranks"
  TRIREME_FULL=1 ./build/release/tests/ranks_tests --gtest_brief=1 --gtest_filter='*every_layout*'
  echo "== testing checkpoints: every pair of layouts, a million power cuts"
  TRIREME_FULL=1 ./build/release/tests/ckpt_tests --gtest_brief=1 --gtest_filter='*every_layout*:*sampled*'
  echo "== testing twenty histories of kills and resumes"
  TRIREME_FULL=1 ./build/release/tests/cli_tests --gtest_brief=1 --gtest_filter='*histories*'
  try_to_install "${launcher_packages[@]}"
  echo "== testing stopped runs under every launcher, two writers in one folder, changed data"
  TRIREME_FULL=1 ./build/release/tests/stops/stops_tests
  echo "== testing every shape of every schedule"
  ./build/release/schedule_test --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_every_shape*'
  for preset in asan tsan; do
    build "$preset"
    # Whole programs: the leak check at the end of a process costs seconds.
    for program in build/"$preset"/*_test build/"$preset"/tests/*_test build/"$preset"/tests/*_tests; do
      echo "== testing $program"
      "$program" --gtest_brief=1
    done
  done
fi
scripts/gpu_record.sh status
echo "== all tests passed"
