#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Many short runs of thread ranks with frequent checkpoints, on a GPU by default: every run must end with 0, and all runs
# of one layout must have the same weights. A run that crashes prints rank, step, op and backtrace.
#   tests/gpu/thread_ranks.sh TRIREME [RUNS] [AT_ONCE] [DEVICE] [OPTIONS OF TRAIN]   200 runs, 4 at once, device cuda
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

trireme=${1:?usage: tests/gpu/thread_ranks.sh TRIREME [RUNS] [AT_ONCE] [DEVICE] [OPTIONS OF TRAIN]}
runs=${2:-200} at_once=${3:-4} device=${4:-cuda} options=("${@:5}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Every third run has the layout of the first line.
layouts=(
  "pipeline_parallel_degree=2 data_parallel_shard_degree=2"
  "data_parallel_replicate_degree=2 data_parallel_shard_degree=2"
  "tensor_parallel_degree=2 data_parallel_shard_degree=2"
  "context_parallel_degree=2 data_parallel_shard_degree=2"
  "pipeline_parallel_degree=2 tensor_parallel_degree=2"
  "experts expert_parallel_degree=2 data_parallel_shard_degree=2"
)

for ((i = 0; i < 4000; ++i)); do echo "line $((i * i % 977)) of a text that a small model can learn"; done >"$work/text.txt"
"$trireme" data build "$work/text.txt" --output "$work/data" >/dev/null || exit 2

# one NUMBER: prints "layout exit_code hash".
one() {
  local number=$1 layout model=kjv-llama words=() word folder
  local others=$((${#layouts[@]} - 1))
  local index=$((number % 3 == 0 ? 0 : 1 + (number / 3 * 2 + number % 3 - 1) % others))
  layout=${layouts[index]} folder=$work/$number
  for word in $layout; do
    if [[ $word == experts ]]; then model=kjv-moe; else words+=("--parallelism.$word"); fi
  done
  "$trireme" train --model "$model" --data "$work/data" --steps 100 --training.seq_len=64 --training.local_batch_size=2 \
    --training.dtype=bf16 --system.device="$device" --checkpoint.interval=10 --job.dump_folder="$folder" "${words[@]}" \
    "${options[@]}" >"$folder.log" 2>&1
  local code=$?
  local hash
  hash=$(cat "$folder"/weights/*/*.safetensors 2>/dev/null | sha256sum | cut -c 1-12)
  if ((code)); then
    echo "run $number ($layout) ended with $code:" >&2
    tail -n 60 "$folder.log" >&2
  fi
  rm -rf "$folder"
  echo "${layout// /,} $code $hash"
}

results=$work/results
begin=$SECONDS
for ((number = 0; number < runs; ++number)); do
  while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
  one "$number" >>"$results" &
done
wait
echo "runs, layout, exit code, hash of the weights"
sort "$results" | uniq -c
failed=$(awk '$2 != 0' "$results" | wc -l)
layouts_seen=$(cut -d ' ' -f 1 "$results" | sort -u | wc -l)
hashes=$(awk '$2 == 0 {print $1, $3}' "$results" | sort -u | wc -l)
echo "$(wc -l <"$results") runs in $((SECONDS - begin)) s, $failed failed, $hashes hashes of $layouts_seen layouts"
((failed == 0 && hashes == layouts_seen))
