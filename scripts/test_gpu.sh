#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures, builds and tests the CUDA back end on a machine with an NVIDIA GPU. Installs nothing. Tests share the
# GPU, several processes at a time, since most of them wait for references on the host. Every part is run even if an
# earlier one failed; the last lines list what passed, and the exit code is 0 only if everything did. A whole run that
# passed is recorded in tests/gpu/record.json (scripts/gpu_record.sh).
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/gpu_record.sh"
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
  --filter GLOB   --gtest_filter for the tests of kernels and whole models ($filter)
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
# report NAME EXIT_CODE SECONDS: stores a line for the summary.
report() {
  if (($2)); then
    broken=1
    summary+=("FAILED  $1 (exit code $2, $3 s)")
  else
    summary+=("passed  $1 ($3 s)")
  fi
}

# part NAME COMMAND...: runs the command.
part() {
  local name=$1 begin=$SECONDS rc
  shift
  echo "== $name: $*"
  record_part "$name" "$@"
  rc=$?
  report "$name" $rc $((SECONDS - begin))
  return $rc
}

# ---- jobs: commands that run side by side, each with its output in a file
results=$build/gpu-results
job_names=() job_commands=()

# job NAME COMMAND...: adds a command; run_jobs starts it.
job() {
  local name=$1
  shift
  job_names+=("$name")
  job_commands+=("$(printf '%q ' "$@")")
}

# run_jobs LIMIT: runs all jobs, at most LIMIT at a time, in their order. The output of a job that fails is printed.
run_jobs() {
  local limit=$1 next=0 running=0 id rc ended
  local -A number_of=() begin_of=()
  echo "== ${#job_names[@]} jobs, $limit at a time"
  while ((next < ${#job_names[@]} || running > 0)); do
    if ((next < ${#job_names[@]} && running < limit)); then
      record_part "${job_names[next]}" bash -c "${job_commands[next]}" >"$results/$next.log" 2>&1 &
      number_of[$!]=$next
      begin_of[$!]=$SECONDS
      ((++next, ++running))
      continue
    fi
    wait -n -p ended
    rc=$?
    ((--running))
    id=${number_of[$ended]}
    report "${job_names[id]}" $rc $((SECONDS - begin_of[$ended]))
    echo "${summary[-1]}"
    ((rc == 0)) || tail -n 60 "$results/$id.log"
  done
  job_names=() job_commands=()
}

# tests_of PROGRAM FILTER: the names of the tests, one a line.
tests_of() {
  "$1" --gtest_list_tests --gtest_filter="$2" | awk '/^[^ ]/ {suite = $1} /^  / {print suite $1}'
}

# shards NAME SECONDS COUNT PROGRAM FILTER: jobs that share the tests.
shards() {
  local shard
  if [[ -z $(tests_of "$4" "$5") ]]; then
    report "$1: no test is called $5" 1 0
    return
  fi
  for ((shard = 0; shard < $3; ++shard)); do
    job "$1: $((shard + 1)) of $3" env GTEST_TOTAL_SHARDS="$3" GTEST_SHARD_INDEX=$shard timeout -k 5 "$2" "$4" \
      --gtest_brief=1 --gtest_filter="$5"
  done
}

# each NAME SECONDS PROGRAM FILTER: a job for every test, stopped after SECONDS.
each() {
  local tests test
  tests=$(tests_of "$3" "$4")
  [[ -n $tests ]] || report "$1: no test is called $4" 1 0
  for test in $tests; do
    job "$1: $test" timeout -k 5 "$2" "$3" --gtest_brief=1 --gtest_filter="$test"
  done
}

finish() {
  echo "== summary"
  printf '%s\n' "${summary[@]}"
  if ((tests && !only_ranks && !broken)) && [[ $filter == '*' && -n $gpu_parts ]]; then
    write_record "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" &&
      echo "recorded in tests/gpu/record.json"
  fi
  exit $broken
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.used,memory.total --format=csv
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
# Files are compiled together as in the preset `release`.
part configure cmake -S "$root" -B "$build" ${generator[@]+"${generator[@]}"} -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_UNITY_BUILD=ON -DTRIREME_CUDA=ON -DTRIREME_DEPS_DIR="$deps" || finish
part build cmake --build "$build" -j "$(nproc)" --target trireme kernels_test gpu_tests \
  comm_test nccl_tests || finish
((tests)) || finish

"$build/trireme" doctor
export TRIREME_GPU_REQUIRED=1  # a GPU that cannot be used is then a failure, not a reason to skip
begin_record "$build/record"
rm -rf "$results"
mkdir -p "$results"
cores=$(nproc)
at_once=$((cores < 4 ? 2 : cores > 24 ? 12 : cores / 2))
gpu_tests=$build/tests/gpu_tests

# The longest come first. The tests of the driver's memory have the GPU for themselves.
nccl_tests=$build/tests/nccl_tests nccl_steps='NcclTest.ten_steps*' lost_ranks='*HangTest.*:LostGpuRankTest.*'
each nccl 240 "$nccl_tests" "$nccl_steps"
each "thread ranks" 200 "$gpu_tests" 'RanksTest.*'
job collectives timeout -k 5 180 "$build/comm_test" --gtest_brief=1 --gtest_filter='*cuda*'
if ((!only_ranks)); then
  kernel_tests=$([[ $filter == '*' ]] && echo '*cuda*:*Cuda*:*gpu*' || echo "$filter")
  shards kernels 300 "$at_once" "$build/kernels_test" "$kernel_tests"
  [[ $filter == *-* ]] && models="$filter:RanksTest.*:MemoryTest.*" || models="$filter-RanksTest.*:MemoryTest.*"
  shards models 300 $((at_once / 2)) "$gpu_tests" "$models"
fi
run_jobs "$at_once"
((only_ranks)) || job memory timeout -k 5 200 "$gpu_tests" --gtest_brief=1 --gtest_filter='MemoryTest.*'
run_jobs 1
each nccl 240 "$nccl_tests" "*-$nccl_steps:$lost_ranks"
run_jobs $((at_once / 4 > 0 ? at_once / 4 : 1))
# Their times are measured: two at a time. The last lines of their output have them.
each 'lost ranks' 3000 "$nccl_tests" "$lost_ranks"
run_jobs 2
grep -h -e ' named; ' -e ' to the next step ' -e '^from the loss of ' "$results"/*.log
if ((memcheck)); then
  if command -v compute-sanitizer >/dev/null; then
    part memcheck compute-sanitizer --tool memcheck --error-exitcode 9 --print-limit 20 \
      "$build/kernels_test" --gtest_brief=1 --gtest_filter='*cuda*:*Cuda*:-*large*'
  else
    report "memcheck: compute-sanitizer is not on the PATH" 1 0
  fi
fi
if ((hf)); then
  part transformers "$python" "$root/tests/gpu/hf_check.py" --trireme "$build/trireme" \
    --gpu-tests "$gpu_tests"
fi
finish
