#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare machine to a trained small model: installs, builds, trains a Llama of 0.8 M parameters on the King James
# text for two minutes, and shows the curve, the memory table and a sample.
#   ./quickstart.sh          in runs/kjv; an earlier quickstart there is replaced
# CUDA is built where a GPU is; TRIREME_CUDA=ON (a missing CUDA is an error) and OFF choose otherwise.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/packages.sh

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "quickstart.sh: unknown argument '$1'; known is --help" >&2; exit 2 ;;
esac

install_packages "${build_packages[@]}" bible-kjv
cuda=${TRIREME_CUDA:-AUTO}
if [ -z "${TRIREME_CUDA:-}" ] && ! has_gpu; then
  cuda=OFF
  echo "== this machine has no NVIDIA GPU: CUDA is left out (TRIREME_CUDA=ON ./quickstart.sh builds it all the same)"
fi
build release -DTRIREME_TESTS=OFF -DTRIREME_CUDA="$cuda" trireme
trireme=./build/release/trireme

echo "== the text"
mkdir -p runs/kjv-data
bible -f gen1:1-rev22:21 >runs/kjv-data/kjv.txt
$trireme data build runs/kjv-data/kjv.txt --output runs/kjv-data/kjv --overwrite
$trireme data inspect runs/kjv-data/kjv

echo "== training: about two minutes on two cores"
$trireme train configs/kjv.toml --overwrite --curve

echo "== to compare: what counting finds in the same text (the network has to be below it)"
$trireme data ngram runs/kjv-data/kjv --context 4 --split 0.05

echo "== a sample"
$trireme generate runs/kjv --prompt 'And God said' --tokens 300 --temperature 0.7

cat <<'TEXT'

== what to try next
  ./build/release/trireme generate runs/kjv --prompt 'The LORD is my' --seed 3
  ./build/release/trireme eval runs/kjv --limit 100
  ./build/release/trireme train configs/kjv.toml --training.dtype=bf16 --training.steps=300 --job.dump_folder=runs/bf16
  ./build/release/trireme bench train --model gpt2-10m --micro-batch 8 --seq 256
  ./test.sh
runs/kjv holds metrics.jsonl, TensorBoard events in tb/, run.json (train again from it), and weights in Hugging Face form.
TEXT
