#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures, builds and tests the CUDA back end on a machine with an NVIDIA GPU. Installs nothing. Every part is run
# even if an earlier one failed; the last lines list what passed, and the exit code is 0 only if everything did.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/gpu
deps=${TRIREME_DEPS_DIR:-}
python=python3
filter='*'
memcheck=0 hf=0 tests=1 only_ranks=0

usage() {
  cat <<TEXT
Usage: scripts/test_gpu.sh [options] [DEPS_DIR]
  DEPS_DIR        folder with the headers of toml++ and xxHash where the system has none; or \$TRIREME_DEPS_DIR
  --build-only    no tests
  --filter GLOB   --gtest_filter for the tests of whole models ($filter)
  --ranks         only the tests of several ranks: as threads that share the GPU, as processes over NCCL
  --memcheck      also the kernel tests under compute-sanitizer's memory checker (minutes)
  --hf            also compare with transformers (tests/gpu/hf_check.py)
  --python FILE   a Python with torch and transformers ($python)
  --build-dir DIR where to build (build/gpu)
TEXT
}

fail() {
  echo "test_gpu: $*" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --memcheck) memcheck=1 ;;
    --hf) hf=1 ;;
    --build-only) tests=0 ;;
    --ranks) only_ranks=1 ;;
    --filter | --python | --build-dir)
      [[ -n ${2:-} ]] || fail "$1 wants a value"
      case $1 in --filter) filter=$2 ;; --python) python=$2 ;; *) build=$2 ;; esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && fail "unknown option $1" ;;
    *) deps=$1 ;;
  esac
  shift
done

[[ -z $deps || -d $deps ]] || fail "$deps is not a folder; it should hold toml++/toml.hpp and xxhash.h"
[[ -z $deps ]] || deps=$(cd "$deps" && pwd)
command -v nvcc >/dev/null || export PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || fail "nvcc is not on the PATH; install CUDA, or add its bin folder"

summary=() broken=0
# part NAME COMMAND...: runs the command and stores a line for the summary.
part() {
  local name=$1 begin=$SECONDS rc
  shift
  echo "== $name: $*"
  "$@"
  rc=$?
  if ((rc)); then
    broken=1
    summary+=("FAILED  $name (exit code $rc, $((SECONDS - begin)) s)")
  else
    summary+=("passed  $name ($((SECONDS - begin)) s)")
  fi
  return $rc
}

# each NAME SECONDS PROGRAM FILTER: runs every matching test in its own process, stopped after SECONDS.
each() {
  local name=$1 seconds=$2 program=$3 tests
  tests=$("$program" --gtest_list_tests --gtest_filter="$4" |
    awk '/^[^ ]/ {suite = $1} /^  / {print suite $1}')
  if [[ -z $tests ]]; then
    broken=1
    summary+=("FAILED  $name (no test is called $4)")
  fi
  for test in $tests; do
    part "$name: $test" timeout -k 5 "$seconds" "$program" --gtest_brief=1 --gtest_filter="$test"
  done
}

finish() {
  echo "== summary"
  printf '%s\n' "${summary[@]}"
  exit $broken
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.used,memory.total --format=csv
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
part configure cmake -S "$root" -B "$build" ${generator[@]+"${generator[@]}"} -DCMAKE_BUILD_TYPE=Release \
  -DTRIREME_CUDA=ON -DTRIREME_DEPS_DIR="$deps" || finish
part build cmake --build "$build" -j "$(nproc)" --target trireme kernels_test gpu_tests \
  comm_test nccl_tests || finish
((tests)) || finish

"$build/trireme" doctor
export TRIREME_GPU_REQUIRED=1  # a GPU that cannot be used is then a failure, not a reason to skip
ranks() {
  # First the collectives of one back end, then whole engines, then processes.
  part collectives timeout -k 5 180 "$build/comm_test" --gtest_brief=1 --gtest_filter='*cuda*'
  each "thread ranks" 150 "$build/tests/gpu_tests" 'RanksTest.*'
  each nccl 240 "$build/tests/nccl_tests" '*'
}
if ((only_ranks)); then
  ranks
  finish
fi
kernel_tests='*cuda*:*Cuda*'
"$build/kernels_test" --gtest_list_tests --gtest_filter="$kernel_tests" | grep -q '^  ' || {
  broken=1
  summary+=("FAILED  kernels (no test is called $kernel_tests)")
}
# Ops first: an error of an op shows there in its smallest form.
part kernels "$build/kernels_test" --gtest_brief=1 --gtest_filter="$kernel_tests"
[[ $filter == *-* ]] && models="$filter:RanksTest.*" || models="$filter-RanksTest.*"
part models "$build/tests/gpu_tests" --gtest_filter="$models"
ranks
if ((memcheck)); then
  if command -v compute-sanitizer >/dev/null; then
    part memcheck compute-sanitizer --tool memcheck --error-exitcode 9 --print-limit 20 \
      "$build/kernels_test" --gtest_brief=1 --gtest_filter="$kernel_tests:-*large*"
  else
    broken=1
    summary+=("FAILED  memcheck (compute-sanitizer is not on the PATH)")
  fi
fi
if ((hf)); then
  part transformers "$python" "$root/tests/gpu/hf_check.py" --trireme "$build/trireme" \
    --gpu-tests "$build/tests/gpu_tests"
fi
finish
