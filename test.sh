#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Trireme and runs its tests, from a bare clone.
#   ./test.sh          the suite that every change must pass (budget: docs/testing.md)
#   ./test.sh --full   also what the default run only samples, a build with clang, and everything under AddressSanitizer + UndefinedBehaviorSanitizer and under ThreadSanitizer
# TRIREME_CUDA=OFF leaves CUDA out. Without a GPU its kernels are compiled as far as PTX; with --full to the end.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/packages.sh
full=0

for argument in "$@"; do
  case "$argument" in
    --full) full=1 ;;
    -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; known are --full and --help" >&2; exit 2 ;;
  esac
done

install_packages "${build_packages[@]}" "${test_packages[@]}"
cuda=(-DTRIREME_CUDA="${TRIREME_CUDA:-AUTO}")
if ! has_gpu; then
  [ "$full" -eq 1 ] && cuda+=(-DCMAKE_CUDA_ARCHITECTURES=90a) || cuda+=(-DCMAKE_CUDA_ARCHITECTURES=90a-virtual)
fi
build release "${cuda[@]}"
echo "== testing release"
output=build/release/test_output
rm -rf "$output"
passed=0
# One more than cores: tests of launchers mostly wait.
ctest --preset release -j "$(($(nproc) + 1))" --output-junit "$PWD/$output/ctest.xml" 2>&1 | follow_tests || passed=$?
scripts/test_report.sh "$output"
[ "$passed" -eq 0 ] || exit "$passed"

if [ "$full" -eq 1 ]; then
  echo "== testing every layout of up to eight ranks, and engines that are aborted"
  TRIREME_FULL=1 ./build/release/tests/ranks_tests --gtest_brief=1 --gtest_filter='*every_layout*:LivesTest.*:AbortsTest.*' 2>&1 | follow "testing"
  echo "== testing checkpoints: every pair of layouts, a million power cuts"
  TRIREME_FULL=1 ./build/release/tests/ckpt_tests --gtest_brief=1 --gtest_filter='*every_layout*:*sampled*' 2>&1 | follow "testing"
  echo "== testing many lives of processes, launchers that die, hosts that are lost, ranks that stall"
  TRIREME_FULL=1 ./build/release/tests/launch/launch_tests --gtest_brief=1 --gtest_filter='Lives*:Launch.two_nodes*:Launch.a_rank*:Guardian*:LostNode*' 2>&1 | follow "testing"
  echo "== testing 100,000 simulated histories of a run's register"
  TRIREME_FULL=1 ./build/release/tests/register_tests --gtest_brief=1 2>&1 | follow "testing"
  echo "== testing twenty histories of kills and resumes"
  TRIREME_FULL=1 ./build/release/tests/cli_tests --gtest_brief=1 --gtest_filter='*histories*' 2>&1 | follow "testing"
  echo "== testing the planner's memory of 3,000 layouts"
  TRIREME_FULL=1 ./build/release/tests/planner_tests --gtest_brief=1 --gtest_filter='PrintedMemory.*' 2>&1 | follow "testing"
  echo "== testing 200 questions on the planner's page"
  TRIREME_FULL=1 python3 -B tests/board/plan_page_test.py build/release/trireme Planner.test_numbers_are_those_of_plan 2>&1 | follow "testing" || [ "$?" -eq 77 ]
  try_to_install "${launcher_packages[@]}"
  echo "== testing stopped runs under every launcher, two writers in one folder, changed data"
  TRIREME_FULL=1 ./build/release/tests/stops/stops_tests 2>&1 | follow "testing"
  echo "== testing the template for Slurm in a cluster of this machine"
  python3 -B tests/slurm/slurm_test.py build/release/trireme 2>&1 | follow "testing" || [ "$?" -eq 77 ]
  echo "== testing every shape of every schedule"
  ./build/release/schedule_test --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_every_shape*' 2>&1 | follow "testing"
  install_packages clang
  build clang -DTRIREME_TESTS=OFF trireme
  for preset in asan tsan; do
    build "$preset"
    # Whole programs: the leak check at the end of a process costs seconds.
    for program in build/"$preset"/*_test build/"$preset"/tests/*_test build/"$preset"/tests/*_tests; do
      echo "== testing $program"
      "$program" --gtest_brief=1 2>&1 | follow "testing"
    done
  done
fi
scripts/gpu_record.sh status
echo "== all tests passed in $(clock "$SECONDS")"
