#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains sixteen ways and prints, one a line, SHA-256 of the final weights and of all losses: a change that should
# change no bit prints the same table. With a second program both train, and their tables are compared; the bits of
# another machine or compiler differ.
#   tests/ranks/hashes.sh TRIREME [OTHER_TRIREME]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

usage="usage: tests/ranks/hashes.sh TRIREME [OTHER_TRIREME]"
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '3,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0; }
[[ $# -eq 1 || $# -eq 2 ]] || { echo "$usage" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A text without a period, so that samples differ.
awk 'BEGIN {n = 7; for (i = 0; i < 6000; ++i) {n = (n * 1103 + 12345) % 65521; printf "word %d of line %d\n", n % 977, i}}' \
  >"$work/text.txt"
# Eight sequences a step, two for each of four workers: layouts with up to four data ranks train on the same batches.
cat >"$work/run.toml" <<TOML
[training]
local_batch_size = 1
global_batch_size = 8
seq_len = 64
steps = 12
[parallelism]
logical_dp = 4
[checkpoint]
interval = 0
[metrics]
log_freq = 1
enable_tensorboard = false
[system]
device = "cpu"
threads = 1
TOML
{ cat "$work/run.toml" && printf '[[phase]]\nfrom_step = 5\nseq_len = 32\nlr_factor = 0.5\n[[phase]]\nfrom_step = 9\nseq_len = 64\n'; } \
  >"$work/phases.toml"

ways=(
  "one rank|"
  "ddp|replicate=4 zero=0"
  "zero 1|shard=4 zero=1"
  "zero 2|shard=4 zero=2"
  "zero 3|shard=4 zero=3"
  "hsdp|replicate=2 shard=2 zero=3"
  "tp and sp|tp=2 shard=2 --parallelism.sequence_parallel"
  "pipeline 1f1b|pp=2 shard=2"
  "pipeline interleaved|pp=2 shard=1 --parallelism.pipeline_parallel_schedule=interleaved"
  "pipeline zb-v|pp=2 shard=1 --parallelism.pipeline_parallel_schedule=zb-v --parallelism.logical_dp=1"
  "context|cp=2 shard=2"
  "experts|model=kjv-moe ep=2 shard=2"
  "fp8 delayed|shard=2 --precision.recipe=fp8-delayed"
  "muon|shard=2 --optimizer.name=Muon --optimizer.lr=1e-3"
  "phases|config=phases shard=2"
  "resume|shard=2 stop=7"
)

# words_of WORD...: sets `config`, `stop` and `words`, the options of train.
words_of() {
  local word model=kjv-llama
  config=run stop=0 words=()
  for word in "$@"; do
    case $word in
      model=*) model=${word#*=} ;;
      config=*) config=${word#*=} ;;
      stop=*) stop=${word#*=} ;;
      zero=*) words+=("--parallelism.zero_stage=${word#*=}") ;;
      replicate=*) words+=("--parallelism.data_parallel_replicate_degree=${word#*=}") ;;
      shard=*) words+=("--parallelism.data_parallel_shard_degree=${word#*=}") ;;
      tp=*) words+=("--parallelism.tensor_parallel_degree=${word#*=}") ;;
      pp=*) words+=("--parallelism.pipeline_parallel_degree=${word#*=}") ;;
      cp=*) words+=("--parallelism.context_parallel_degree=${word#*=}") ;;
      ep=*) words+=("--parallelism.expert_parallel_degree=${word#*=}") ;;
      *) words+=("$word") ;;
    esac
  done
  words+=("--model.name=$model")
}

hash_of() { sha256sum | cut -c 1-16; }

# train TRIREME FOLDER OPTION...: appends to the run's log.
train() {
  local trireme=$1 folder=$2
  shift 2
  "$trireme" train "$work/$config.toml" --training.dataset_path="$work/text" --job.dump_folder="$folder" "${words[@]}" \
    "$@" >>"$folder.log" 2>&1 </dev/null
}

# table TRIREME NAME: prints the table. Returns 1 if a run failed.
table() {
  local trireme=$1 way folder code=0 failed=0
  for way in "${ways[@]}"; do
    folder=$work/$2-${way%%|*}
    folder=${folder// /_}
    # shellcheck disable=SC2086  # a list of words
    words_of ${way#*|}
    code=0
    if ((stop)); then
      train "$trireme" "$folder" --training.steps="$stop" --lr_scheduler.total_steps=12 || code=$?
      ((code)) || train "$trireme" "$folder" --lr_scheduler.total_steps=12 --resume auto || code=$?
    else
      train "$trireme" "$folder" || code=$?
    fi
    if ((code)); then
      failed=1
      printf '%-22s exit code %d\n' "${way%%|*}" "$code"
      tail -n 5 "$folder.log" >&2
      continue
    fi
    printf '%-22s weights %s losses %s\n' "${way%%|*}" "$(cat "$folder"/weights/*/*.safetensors | hash_of)" \
      "$(grep -o '"loss_metrics/global_avg_loss":[^,]*' "$folder/metrics.jsonl" | hash_of)"
    rm -rf "$folder"
  done
  return $failed
}

"$1" data build "$work/text.txt" --output "$work/text" >"$work/data.log" 2>&1 || { cat "$work/data.log" >&2; exit 2; }
table "$1" first | tee "$work/first"
passed=${PIPESTATUS[0]}
[[ $# -eq 2 ]] || exit "$passed"
table "$2" second >"$work/second" || passed=1
if diff "$work/second" "$work/first" >"$work/diff"; then
  echo "the same as those of $2"
else
  echo "differences (<: $2, >: $1):"
  cat "$work/diff"
  passed=1
fi
exit "$passed"
