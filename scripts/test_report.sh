#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/test_report.sh FOLDER: after ctest, prints how many tests ran, why some were skipped, and the 30 slowest beside
# their budgets (tests/budgets.txt). FOLDER has the files of tests/run_tests.sh and ctest.xml, those of
# `ctest --output-junit`. Times are of one run: a test over its budget is marked and does not fail.
set -euo pipefail
folder=${1:?usage: scripts/test_report.sh FOLDER}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -f "$folder/ctest.xml" ] || { echo "test_report.sh: $folder/ctest.xml is missing: run ctest with --output-junit" >&2; exit 2; }

# One line a test: seconds, result, name, the reason if it was skipped.
list_tests() {
  awk '
    function value(key,   text) {
      if (!match($0, " " key "=\"[^\"]*\"")) return ""
      text = substr($0, RSTART, RLENGTH)
      sub("^ " key "=\"", "", text); sub("\"$", "", text)
      gsub("&quot;", "\"", text); gsub("&apos;", "\x27", text)
      gsub("&lt;", "<", text); gsub("&gt;", ">", text); gsub("&amp;", "\\&", text)
      return text
    }
    function finish() {
      if (name != "") printf "%s\t%s\t%s\t%s\n", time, result, name, reason
      name = ""; reason = ""
    }
    FNR == 1 { finish(); program = FILENAME; sub(".*/", "", program); sub("\\.xml$", "", program) }
    program != "ctest" && /<testcase / {
      finish()
      sub("\\.[0-9]+$", "", program)
      time = value("time"); result = value("result"); name = program ": " value("classname") "." value("name")
    }
    program != "ctest" && /<skipped / {
      reason = value("message"); sub("^.*&#x0A;", "", reason)
      if (reason == "") reason = "no reason"
    }
    program == "ctest" && /<testcase / && value("name") ~ ("^(" alone ")") {
      finish()
      time = value("time"); result = value("status") == "notrun" ? "skipped" : "completed"; name = value("name")
    }
    END { finish() }' alone='board\\.[a-z]|contrib\\.' "$folder"/*.xml
}

all=$(list_tests | sort -t "$(printf '\t')" -k 1,1 -rn)
echo "== $(printf '%s\n' "$all" | wc -l) tests, $(printf '%s\n' "$all" | awk -F '\t' '$2 == "skipped"' | wc -l) of them skipped:"
printf '%s\n' "$all" | awk -F '\t' '$2 == "skipped" {print $4 == "" ? $3 : $4}' | sort | uniq -c | sort -rn | head -12
echo "== the 30 slowest (budgets: tests/budgets.txt)"
printf '%s\n' "$all" | awk -F '\t' '
  FNR == NR && !/^#/ && NF { split($0, words, " "); seconds = words[1]; name = $0; sub("^ *[^ ]+ +", "", name); budget[name] = seconds; next }
  FNR == NR { next }
  shown < 30 {
    allowed = $3 in budget ? budget[$3] : budget["other tests"]
    printf "%8.1f s of %4d  %s%s\n", $1, allowed, $3, ($1 > allowed ? "   <-- over its budget" : "")
    ++shown
  }' "$root/tests/budgets.txt" -
