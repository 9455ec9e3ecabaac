#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the readers of files that come from elsewhere: config, model, megatron, llmc, safetensors,
# checkpoint, lines (of text, also compressed), json_line, tar, mds, packing, tokenizer.
#   tests/fuzz/run.sh [SECONDS [READER...]]   SECONDS for each reader (300), as many at a time as there are cores
# Ends with 1 if there is a finding; the file that shows it lies in build/fuzz/findings and belongs into
# tests/fuzz/corpus/READER once it is mended. What was learnt stays in build/fuzz/grown for the next time.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/packages.sh

packages=(cmake ninja-build clang-14 libclang-rt-14-dev libstdc++-12-dev libfmt-dev libspdlog-dev nlohmann-json3-dev
          libtomlplusplus-dev libxxhash-dev zlib1g-dev libzstd-dev libpcre2-dev libutf8proc-dev)
folder=build/fuzz

usage() {
  sed -n '3,7s/^# \{0,1\}//p' "$0"
}

# fuzz READER: runs it to its end, with the log in $folder/READER.log.
fuzz() {
  mkdir -p "$folder/grown/$1" "$folder/findings"
  "$folder/fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$folder/findings/$1-" "$folder/grown/$1" "tests/fuzz/corpus/$1" >"$folder/$1.log" 2>&1
}

# statistic READER NAME: a number from the end of the log.
statistic() {
  sed -n "s/^stat::$2: *//p" "$folder/$1.log" | tail -1
}

seconds=300
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  "") ;;
  *[!0-9]*) echo "run.sh: '$1' is not a number of seconds" >&2; exit 2 ;;
  *) seconds=$1; shift ;;
esac
readers=("$@")
[ ${#readers[@]} -gt 0 ] || readers=(config model megatron llmc safetensors checkpoint lines json_line tar mds packing tokenizer)

install_packages "${packages[@]}"
echo "== building $folder"
cmake -S tests/fuzz -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 >/dev/null
ninja -C "$folder" --quiet "${readers[@]/#/fuzz_}"

# started[PID] is the reader that the process runs.
declare -A started=()
findings=0
# Waits until fewer than $1 readers run, and says every 20 seconds how far they are.
wait_until_below() {
  local pid reader last=$SECONDS
  while [ ${#started[@]} -ge "$1" ]; do
    sleep 1
    for pid in "${!started[@]}"; do
      kill -0 "$pid" 2>/dev/null && continue
      reader=${started[$pid]}
      unset "started[$pid]"
      if wait "$pid"; then
        echo "$reader: no finding in $(statistic "$reader" number_of_executed_units) executions," \
          "$(statistic "$reader" average_exec_per_sec) a second"
      else
        findings=$((findings + 1))
        echo "$reader: FINDING; the end of $folder/$reader.log:"
        tail -25 "$folder/$reader.log"
      fi
    done
    if [ $((SECONDS - last)) -ge 20 ]; then
      last=$SECONDS
      for pid in "${!started[@]}"; do
        echo "  ${started[$pid]}: $(grep '^#[0-9]' "$folder/${started[$pid]}.log" | tail -1 | tr -s '\t ' ' ')"
      done
    fi
  done
}

echo "== fuzzing ${readers[*]}, $seconds s each"
for reader in "${readers[@]}"; do
  wait_until_below "$(nproc)"
  fuzz "$reader" &
  started[$!]=$reader
done
wait_until_below 1
[ "$findings" -eq 0 ] || { echo "== $findings findings, in $folder/findings"; exit 1; }
echo "== no findings"
