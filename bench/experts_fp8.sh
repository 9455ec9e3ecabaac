#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Experts in 8 bits on a GPU: tests of the kernels and of whole models, then the speed of their products beside those in
# bf16, for many small experts and for few large ones. The argument is the build folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build/release}
cmake --build "$build" --target kernels_test gpu_tests grouped_speed >/dev/null
"$build/kernels_test" --gtest_brief=1 --gtest_filter='ExpertsCodes*:ExpertsProducts*:CudaExperts*'
"$build/tests/gpu_tests" --gtest_brief=1 --gtest_filter='Float8*'
for precision in bf16 fp8-tensor fp8-block; do
  "$build/bench/grouped_speed" --part products --precision "$precision" --rows 2048 --width 2048 --hidden 1024 --experts 64
  "$build/bench/grouped_speed" --part products --precision "$precision" --rows 4096 --width 4096 --hidden 7168 --experts 4
done
