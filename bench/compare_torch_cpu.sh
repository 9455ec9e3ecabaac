#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training throughput on the CPU, Trireme against PyTorch, measured in turn so that both see the same machine. Prints
# one JSON line per model with the median of each; progress goes to stderr. Batches are those of the peer: 8 x 256.
# Installs and builds what is missing, from a bare clone.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=$root/build/release/trireme
trireme=$built
peer=$root/bench/peers/torch_cpu_peer.py
python=/usr/bin/python3
threads=2
steps=6
rounds=3
models=()

usage() {
  cat <<TEXT
Usage: bench/compare_torch_cpu.sh [options] [model ...]      (default: gpt2-10m llama-15m)
  --rounds N     measurements of each program, in turn ($rounds)
  --threads N    threads of both programs ($threads)
  --steps N      training steps of a measurement of Trireme ($steps)
  --trireme FILE the program (build/release/trireme)
  --peer FILE    the PyTorch program (bench/peers/torch_cpu_peer.py)
  --python FILE  a Python with PyTorch ($python)
TEXT
}

fail() {
  echo "compare_torch_cpu: $*" >&2
  exit 1
}

while (($#)); do
  case $1 in
    --rounds | --threads | --steps)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 wants a whole number above 0, not '${2:-}'"
      declare "${1#--}=$2"
      shift
      ;;
    --trireme | --peer | --python)
      [[ -n ${2:-} ]] || fail "$1 wants a file"
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && fail "unknown option $1" ;;
    *) models+=("$1") ;;
  esac
  shift
done
((${#models[@]})) || models=(gpt2-10m llama-15m)

[[ -f $peer ]] || fail "$peer is not there; name the PyTorch program with --peer"
. "$root/scripts/packages.sh"
if [[ $trireme == "$built" && ! -x $built ]]; then
  install_packages "${build_packages[@]}" "${test_packages[@]}" >&2
  (cd "$root" && build release trireme) >&2
fi
[[ -x $trireme ]] || fail "$trireme is not there; name the program with --trireme"
if [[ $python == /usr/bin/python3 ]]; then
  install_packages python3-torch >&2
else
  command -v "$python" >/dev/null || fail "$python is not there; name a Python with PyTorch with --python"
fi
"$python" -c 'import torch' 2>/dev/null ||
  fail "$python has no PyTorch; run: sudo apt-get install -y python3-torch, and leave out --python"

# rate FIELD COMMAND...: runs the command and prints the FIELD of the last JSON line of its output.
rate() {
  local field=$1 output
  shift
  output=$("$@") || fail "this failed: $*"
  "$python" -c '
import json, sys
lines = [line for line in sys.argv[2].splitlines() if line.startswith("{")]
value = json.loads(lines[-1]).get(sys.argv[1]) if lines else None
if not isinstance(value, (int, float)) or value <= 0:
    sys.exit(f"no positive \"{sys.argv[1]}\" in the output: {sys.argv[2]!r}")
print(value)' "$field" "$output" || fail "this gave no rate: $*"
}

for model in "${models[@]}"; do
  ours=()
  theirs=()
  for ((round = 1; round <= rounds; ++round)); do
    value=$(rate tokens_per_second "$trireme" bench train --model "$model" --micro-batch 8 --seq 256 \
      --threads "$threads" --steps "$steps" --json)
    ours+=("$value")
    echo "$model round $round/$rounds: trireme $value tokens/s" >&2
    value=$(rate tok_s "$python" "$peer" "$threads" "$model")
    theirs+=("$value")
    echo "$model round $round/$rounds: pytorch $value tokens/s" >&2
  done
  "$python" -c '
import json, statistics, sys
ours, theirs = (statistics.median(map(float, values.split())) for values in sys.argv[2:4])
print(json.dumps(dict(model=sys.argv[1], trireme_tokens_per_second=round(ours, 1),
                      pytorch_tokens_per_second=round(theirs, 1), ratio=round(ours / theirs, 3),
                      rounds=int(sys.argv[4]))))' "$model" "${ours[*]}" "${theirs[*]}" "$rounds"
done
