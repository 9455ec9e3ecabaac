#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run by ctest: tests/run_tests.sh FILE PROGRAM [ARGUMENT...] runs a GoogleTest program, or the share of its tests that
# GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX give it. FILE.txt gets its output, FILE.xml result and time of every test. If
# it fails, what the tests printed that did not pass is printed; the last one is where a crash was.
set -uo pipefail
file=$1
shift
mkdir -p "$(dirname "$file")"
rm -f "$file.xml"
"$@" --gtest_output="xml:$file.xml" >"$file.txt" 2>&1
status=$?
((status == 0)) && exit 0
awk '
  /^\[ RUN      \]/ { held = $0; next }
  /^\[       OK \]/ || /^\[  SKIPPED \]/ { held = ""; next }
  held != "" { held = held "\n" $0; if (/^\[  FAILED  \]/) { print held; held = "" }; next }
  /^\[----------\]/ || /^$/ { next }
  { print }
  END { if (held != "") print held }' "$file.txt"
echo "$1 ended with $status; all of its output: $file.txt"
exit "$status"
