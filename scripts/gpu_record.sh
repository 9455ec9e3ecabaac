#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The record of the last whole run of the GPU suite, tests/gpu/record.json: it tells whether the sources that reach a
# GPU are those that passed on one. scripts/test_gpu.sh writes it; ./test.sh and every build compare it.
#   scripts/gpu_record.sh files    the sources that reach a GPU, one a line
#   scripts/gpu_record.sh hash     their hash, which is the same on every machine
#   scripts/gpu_record.sh status   one line if they are not those of the record; otherwise nothing
# This is the only place that knows which sources reach a GPU. Bash and coreutils suffice. Also sourced.

gpu_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gpu_record=$gpu_root/tests/gpu/record.json
gpu_parts=  # the folder in which parts of a run leave their counts; set by begin_record

# The folder of the engine and those it may include. The suite runs no unit tests but those of kernels and comm.
gpu_files() (
  cd "$gpu_root" || exit 1
  export LC_ALL=C
  below=$(sed -n 's/^[0-9]* *engine *: *//p' src/floors.txt)
  [[ -n $below ]] || { echo "gpu_record: src/floors.txt has no line for engine" >&2; exit 1; }
  {
    for folder in $below engine; do
      find "src/$folder" -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) |
        case $folder in kernels | comm) cat ;; *) grep -v '_test\.\(cpp\|h\)$' ;; esac
    done
    for rig in tests/engine/rig tests/golden/golden_run tests/launch/exercise tests/launch/rank_program \
      tests/ranks/near_rig tests/ranks/ranks_rig; do
      ls "$rig.cpp" "$rig.h" 2>/dev/null
    done
    find tests/gpu -type f \( -name '*.cpp' -o -name '*.h' \)
    echo scripts/test_gpu.sh
  } | sort
)

# Prints "hash  path" of every file.
gpu_sums() (
  cd "$gpu_root" && gpu_files | xargs -d '\n' sha256sum
)

# short_hash: of the lines on standard input.
short_hash() { sha256sum | cut -c 1-16; }

gpu_hash() { gpu_sums | short_hash; }

# Prints "folder hash" of every folder: src/NAME, and tests and scripts as one each.
gpu_folder_hashes() {
  local sums=$1 folder
  sed -e 's/^[0-9a-f]*  //' -e 's,^\(src/[^/]*\)/.*,\1,' -e 's,^\(tests\|scripts\)/.*,\1,' <<<"$sums" | LC_ALL=C sort -u |
    while read -r folder; do
      echo "$folder $(grep "^[0-9a-f]*  $folder/" <<<"$sums" | short_hash)"
    done
}

# record_field NAME: the value of a key of the record's first level.
record_field() { sed -n 's/^  "'"$1"'": "\{0,1\}\([^",]*\)"\{0,1\},\{0,1\}$/\1/p' "$gpu_record"; }

gpu_record_status() {
  local ask="run scripts/test_gpu.sh on a machine with a GPU"
  if [[ ! -f $gpu_record ]]; then
    echo "GPU suite: no whole run is recorded in tests/gpu/record.json; $ask"
    return
  fi
  local sums commit device
  sums=$(gpu_sums) || return
  commit=$(record_field commit) device=$(record_field device)
  [[ $(record_field hash) == "$(short_hash <<<"$sums")" ]] && return
  if [[ -z $commit || -z $device ]]; then
    echo "GPU suite: tests/gpu/record.json cannot be read; $ask"
    return
  fi
  local changed=() folder hash
  while read -r folder hash; do
    grep -q "^    \"$folder\": \"$hash\"" "$gpu_record" || changed+=("$folder")
  done < <(gpu_folder_hashes "$sums")
  local list
  list=$(printf ', %s' "${changed[@]:-files that were removed}")
  echo "GPU suite: last run whole on commit $commit ($device); changed since: ${list:2}; $ask"
}

# begin_record DIR: forgets what an earlier run left in DIR.
begin_record() {
  gpu_parts=$1
  rm -rf "$gpu_parts"
  mkdir -p "$gpu_parts"
}

# record_part NAME COMMAND...: runs a part and keeps its seconds and what googletest counted. The exit status is that of
# the command. Parts may run at the same time. The record has the sums of "kernels: x" and "kernels: y". Before
# begin_record it runs the command and keeps nothing.
record_part() {
  local file begin=$SECONDS rc
  if [[ -z $gpu_parts ]]; then
    shift
    "$@"
    return
  fi
  file=$gpu_parts/$(tr -c 'A-Za-z0-9_.\n' _ <<<"$1")
  local group=${1%%:*}
  shift
  GTEST_OUTPUT=json:$file.json "$@"
  rc=$?
  echo "$group" >"$file.name"
  echo $((SECONDS - begin)) >"$file.seconds"
  return $rc
}

# gtest_count FILE: tests that ran and tests that were skipped, of googletest's report; nothing if there is none.
gtest_count() {
  [[ -f $1 ]] || return 0
  echo "$(sed -n '0,/"tests":/s/.*"tests": \([0-9]*\),/\1/p' "$1")" "$(grep -c '"result": "SKIPPED"' "$1")"
}

# Prints "seconds tests skipped name" of every part, in the order in which they ended.
recorded_parts() {
  local name_file file name
  declare -A seconds=() tests=() skipped=()
  local order=() count
  # shellcheck disable=SC2012,SC2045  # the names have no spaces: record_part replaces them
  for name_file in $(ls -tr "$gpu_parts"/*.name 2>/dev/null); do
    file=${name_file%.name} name=$(<"$name_file")
    [[ -n ${seconds[$name]:-} ]] || order+=("$name")
    read -ra count < <(gtest_count "$file.json")
    seconds[$name]=$((${seconds[$name]:-0} + $(<"$file.seconds")))
    tests[$name]=$((${tests[$name]:-0} + ${count[0]:-0}))
    skipped[$name]=$((${skipped[$name]:-0} + ${count[1]:-0}))
  done
  for name in "${order[@]}"; do echo "${seconds[$name]} ${tests[$name]} ${skipped[$name]} $name"; done
}

gpu_commit() {
  local commit=${TRIREME_COMMIT:-}
  if [[ -z $commit ]] && commit=$(git -C "$gpu_root" rev-parse --short=12 HEAD 2>/dev/null); then
    [[ -z $(git -C "$gpu_root" status --porcelain --untracked-files=no 2>/dev/null) ]] || commit+=-dirty
  fi
  echo "${commit:-unknown}"
}

# write_record DEVICE: writes the record of a run that was whole and passed. A part of which every test was skipped shows
# that it was not whole.
write_record() {
  local sums all=0 line seconds tests skipped name list=() folder hash
  sums=$(gpu_sums) || return
  while read -r seconds tests skipped name; do
    if ((tests > 0 && tests == skipped)); then
      echo "gpu_record: nothing is recorded: every test of $name was skipped" >&2
      return 1
    fi
    all=$((all + tests))
    list+=("    {\"name\": \"$name\", \"tests\": $tests, \"skipped\": $skipped, \"seconds\": $seconds}")
  done < <(recorded_parts)
  if ((all == 0)); then
    echo "gpu_record: nothing is recorded: no test ran" >&2
    return 1
  fi
  {
    echo '{'
    echo "  \"commit\": \"$(gpu_commit)\","
    echo "  \"date\": \"$(date -u +%Y-%m-%d)\","
    echo "  \"device\": \"$(tr -cd 'A-Za-z0-9 ._-' <<<"$1")\","
    echo "  \"hash\": \"$(short_hash <<<"$sums")\","
    echo "  \"files\": $(wc -l <<<"$sums"),"
    echo '  "folders": {'
    line=
    while read -r folder hash; do
      [[ -z $line ]] || echo "$line,"
      line="    \"$folder\": \"$hash\""
    done < <(gpu_folder_hashes "$sums")
    echo "$line"
    echo '  },'
    echo "  \"tests\": $all,"
    echo '  "parts": ['
    line=
    for name in "${list[@]}"; do
      [[ -z $line ]] || echo "$line,"
      line=$name
    done
    echo "$line"
    echo '  ]'
    echo '}'
  } >"$gpu_record"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -uo pipefail
  case ${1:-} in
    files) gpu_files ;;
    hash) gpu_hash ;;
    status) gpu_record_status ;;
    -h | --help) sed -n '3,8s/^# \{0,1\}//p' "$0" ;;
    *)
      echo "gpu_record: wants files, hash or status; found '${1:-}'" >&2
      exit 2
      ;;
  esac
fi
