#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training throughput and memory on one GPU: Trireme (fast, l1) against PyTorch and the counted floor, measured in turn
# so that all see the same machine. Prints one JSON line per model with the median of each; progress goes to stderr.
# Models are those of the peer, described in bench/models/*.toml. Memory is the driver's highest value while the program
# runs, less its value before, sampled in the same way for both. Gradients are stored in bf16, the precision of the
# peer's products (it stores them in fp32); activations that the backward recomputes anyway are not stored; master
# weights are split fp32 (the low 16 bits beside the bf16 weight).
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
trireme=$root/build/gpu/trireme
peers=$root/bench/peers
python=python3
rounds=1 steps=16 warmup=4 floor=1 modes=(fast l1) peak=989 recipe=bf16
models=() usual=(gpt2-124m:64:none llama-1b:8 gpt2-1.5b:16:selective:25 llama-8b-4l:2 llama-3b:4)
settings=(--grad-dtype bf16 --master-dtype u16)
usage() {
  cat <<TEXT
Usage: scripts/compare_gpu.sh [options] [model:micro-batch[:recompute[:blocks]] ...] [-- settings of bench train]
  (default: ${usual[*]}
   -- ${settings[*]}; recompute is selective, of all blocks, unless it is given)
  --recipe NAME     number formats of Trireme: bf16, or fp8-tensor, fp8-block or fp8-delayed, which are compared with
                    the peer and the floor in fp8, and with Trireme in bf16 ($recipe)
  --peers DIR       folder of torch_peer.py and gpu_floor.py (bench/peers)
  --rounds N        measurements of each program, in turn ($rounds)
  --steps N         timed steps of Trireme ($steps)
  --only-fast       do not measure determinism l1
  --no-floor        do not run gpu_floor.py (15 s a model)
  --peak-tflops X   for MFU ($peak, the peer's)
  --trireme FILE    the program (build/gpu/trireme)
  --python FILE     a Python with PyTorch ($python)
TEXT
}
fail() {
  echo "compare_gpu: $*" >&2
  exit 1
}
while (($#)); do
  case $1 in
    --rounds | --steps)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 wants a whole number above 0, not '${2:-}'"
      declare "${1#--}=$2"
      shift
      ;;
    --peers | --trireme | --python | --peak-tflops | --recipe)
      [[ -n ${2:-} ]] || fail "$1 wants a value"
      case $1 in --peak-tflops) peak=$2 ;; *) declare "${1#--}=$2" ;; esac
      shift
      ;;
    --only-fast) modes=(fast) ;;
    --no-floor) floor=0 ;;
    --) shift && settings=("$@") && break ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && fail "unknown option $1" ;;
    *) models+=("$1") ;;
  esac
  shift
done
peer=torch_peer.py floor_key=floor_tok_s_bf16
case $recipe in
  bf16) ;;
  fp8-tensor | fp8-block | fp8-delayed) peer=torch_fp8_peer.py floor_key=floor_tok_s_fp8 ;;
  *) fail "--recipe '$recipe': use bf16, fp8-tensor, fp8-block or fp8-delayed" ;;
esac
((${#models[@]})) || models=("${usual[@]}")
[[ -x $trireme ]] || fail "$trireme is not there; build it with scripts/test_gpu.sh --build-only"
[[ -f $peers/$peer ]] || fail "$peers/$peer is not there; name its folder with --peers"
command -v nvidia-smi >/dev/null || fail "nvidia-smi is not there: this needs a machine with an NVIDIA GPU"
for model in "${models[@]}"; do
  [[ $model =~ ^[^:]+:[1-9][0-9]*(:(none|selective|full)(:[0-9]+)?)?$ ]] ||
    fail "'$model': give model:micro-batch[:recompute[:blocks]], as llama-1b:8 or gpt2-1.5b:16:selective:25"
  [[ -f $root/bench/models/${model%%:*}.toml ]] || fail "bench/models/${model%%:*}.toml is not there"
done

scratch=$(mktemp -d)
sampler=
cleanup() {
  [[ -n $sampler ]] && kill "$sampler" 2>/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT
broken=0

used_mib() { nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits; }

# measure FILE COMMAND...: appends the last JSON line of its output, with "driver_mib" added, to FILE.
measure() {
  local file=$1 before rc
  shift
  before=$(used_mib)
  # Both programs keep their memory until they end, so few samples suffice. One process each: nvidia-smi's loop
  # buffers its output.
  while :; do
    used_mib
    sleep 0.5
  done >"$scratch/samples" 2>/dev/null &
  sampler=$!
  "$@" >"$scratch/out" 2>"$scratch/err"
  rc=$?
  kill "$sampler" 2>/dev/null
  wait "$sampler" 2>/dev/null
  sampler=
  if ! "$python" - "$scratch" "$before" "$rc" >>"$file" <<'CODE'
import json, pathlib, sys
folder, before, rc = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
lines = [line for line in (folder / "out").read_text().splitlines() if line.startswith("{")]
value = json.loads(lines[-1]) if lines else {}
if rc != 0 or not lines or "error" in value:
    sys.exit(f"exit code {rc}: {value.get('error') or (folder / 'err').read_text()[-1500:]}")
samples = [int(word) for word in (folder / "samples").read_text().split() if word.isdigit()]
value["driver_mib"] = max(samples, default=before) - before
print(json.dumps(value))
CODE
  then
    echo "compare_gpu: FAILED: $*" >&2
    broken=1
  fi
}

if ((floor)); then
  echo "floor ..." >&2
  "$python" "$peers/gpu_floor.py" "${models[@]%%:*}" >"$scratch/floor" 2>"$scratch/err" || {
    tail -n 5 "$scratch/err" >&2
    broken=1
  }
fi
touch "$scratch/floor"
# trireme_as MODE STEPS [RECIPE]: a command for measure, with the current model.
trireme_as() {
  command=("$trireme" bench train --model "$root/bench/models/$name.toml" --micro-batch "$batch" --seq "$seq"
    --dtype "${3:-$recipe}" --device cuda --determinism "$1" --steps "$2" --warmup "$warmup" --peak-tflops "$peak" --json
    --recompute "$recompute" --recompute-blocks "$blocks" ${settings[@]+"${settings[@]}"})
}
for model in "${models[@]}"; do
  IFS=: read -r name batch recompute blocks <<<"$model"
  recompute=${recompute:-selective} blocks=${blocks:--1}
  seq=$(sed -n 's/^max_seq = //p' "$root/bench/models/$name.toml")
  rm -f "$scratch"/{fast,l1,torch,first,bf16}
  touch "$scratch"/{fast,l1,torch,first,bf16}
  # The first run on a machine benchmarks the algorithms of its products and stores the choice; every other run is
  # compared.
  for mode in "${modes[@]}"; do
    echo "$name: trireme $mode, first run ..." >&2
    trireme_as "$mode" 1
    measure "$scratch/first" "${command[@]}"
  done
  for ((round = 1; round <= rounds; ++round)); do
    echo "$name round $round/$rounds: pytorch ..." >&2
    measure "$scratch/torch" "$python" "$peers/$peer" "$name:$batch:compile"
    if [[ $recipe != bf16 ]]; then
      echo "$name round $round/$rounds: trireme fast in bf16 ..." >&2
      trireme_as fast "$steps" bf16
      measure "$scratch/bf16" "${command[@]}"
    fi
    for mode in "${modes[@]}"; do
      echo "$name round $round/$rounds: trireme $mode ..." >&2
      trireme_as "$mode" "$steps"
      measure "$scratch/$mode" "${command[@]}"
    done
  done
  "$python" - "$scratch" "$name" "$batch" "$seq" "$rounds" "--recompute $recompute --recompute-blocks $blocks ${settings[*]}" \
    "$recipe" "$floor_key" <<'CODE'
import json, pathlib, statistics, sys
folder, (name, batch, seq, rounds, settings, recipe, floor_key) = pathlib.Path(sys.argv[1]), sys.argv[2:9]
runs = {kind: [json.loads(line) for line in (folder / kind).read_text().splitlines() if line.startswith("{")]
        for kind in ("fast", "l1", "torch", "floor", "first", "bf16")}
def median(kind, key):
    values = [run[key] for run in runs[kind] if isinstance(run.get(key), (int, float))]
    return statistics.median(values) if values else None
def quotient(a, b, digits=3):
    return round(a / b, digits) if a and b else None
fast, l1, torch = median("fast", "tokens_per_second"), median("l1", "tokens_per_second"), median("torch", "tok_s")
floor = next((run.get(floor_key) for run in runs["floor"] if run.get("model") == name), None)
gib = lambda kind: quotient(median(kind, "driver_mib"), 1024, 2)
print(json.dumps(dict(
    model=name, micro_batch=int(batch), seq=int(seq), rounds=int(rounds), recipe=recipe, settings=settings,
    trireme_fast_tokens_per_second=fast and round(fast), trireme_l1_tokens_per_second=l1 and round(l1),
    pytorch_tokens_per_second=torch, floor_tokens_per_second=floor,
    fast_over_pytorch=quotient(fast, torch), l1_over_pytorch=quotient(l1, torch), fast_over_floor=quotient(fast, floor),
    trireme_bf16_tokens_per_second=median("bf16", "tokens_per_second"),
    fast_over_bf16=quotient(fast, median("bf16", "tokens_per_second")),
    l1_price_percent=round(100 * (fast / l1 - 1), 2) if fast and l1 else None,
    trireme_fast_mfu=median("fast", "mfu"), trireme_l1_mfu=median("l1", "mfu"), pytorch_mfu=median("torch", "mfu_palm"),
    trireme_fast_driver_gib=gib("fast"), trireme_l1_driver_gib=gib("l1"), pytorch_driver_gib=gib("torch"),
    memory_over_pytorch=quotient(median("fast", "driver_mib"), median("torch", "driver_mib")),
    trireme_first_startup_seconds=max((run["startup_seconds"] for run in runs["first"]), default=None),
    trireme_first_driver_gib=quotient(max((run["driver_mib"] for run in runs["first"]), default=0), 1024, 2),
    trireme_startup_seconds=median("fast", "startup_seconds"), pytorch_setup_seconds=median("torch", "setup_s"),
    trireme_loss=median("fast", "loss"), pytorch_loss=median("torch", "loss"))), flush=True)
CODE
done
exit $broken
