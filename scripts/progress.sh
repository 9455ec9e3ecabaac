# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # used by the scripts that source this file
# Sourced by scripts/packages.sh: filters that show how far a command is. On a terminal one line is rewritten; elsewhere
# no filter is silent for more than 20 seconds. What a command itself has to say is passed on.
quiet_seconds=${TRIREME_QUIET_SECONDS:-18}

# Prints seconds as minutes:seconds.
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# next_line SECONDS: reads a line of stdin into `line`. Returns 0: a line; 1: the end; 2: none came in that time.
next_line() {
  local part='' status=0
  IFS= read -r -t "$1" part || status=$?
  if ((status > 128)); then
    unfinished+=$part
    return 2
  fi
  line=$unfinished$part unfinished=''
  ((status == 0)) || [[ -n $line ]]
}

# show TEXT: rewrites the line on a terminal; elsewhere prints one if the last is `quiet_seconds` ago.
show() {
  if [[ -t 1 ]]; then
    printf '\r\e[K%s' "   $1"
  elif ((SECONDS - shown >= quiet_seconds)); then
    printf '   %s\n' "$1"
    shown=$SECONDS
  fi
}

# say LINE: prints it, where `show` may have left a line.
say() {
  [[ ! -t 1 ]] || printf '\r\e[K'
  printf '%s\n' "$1"
  shown=$SECONDS
}

# COMMAND 2>&1 | follow WORDS: passes lines on; "WORDS, 1:20 so far" where there are none.
follow() {
  local line unfinished='' begin=$SECONDS shown=$SECONDS status
  while true; do
    status=0
    next_line 1 || status=$?
    ((status != 1)) || break
    ((status == 2)) || say "$line"
    show "$1, $(clock $((SECONDS - begin))) so far"
  done
  [[ ! -t 1 ]] || printf '\r\e[K'
}

# NINJA_STATUS="$ninja_status" ninja 2>&1 | follow_build: percentage, steps and an estimate; what compilers print.
ninja_status='@ %f %t '
follow_build() {
  local line unfinished='' begin=$SECONDS shown=$SECONDS status finished=0 total=0 left
  while true; do
    status=0
    next_line 1 || status=$?
    ((status != 1)) || break
    if ((status == 0)); then
      if [[ $line =~ ^@\ ([0-9]+)\ ([0-9]+)\  ]]; then
        finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
      elif [[ -n $line && $line != 'ninja: Entering directory'* && $line != 'ninja: no work to do.' ]]; then
        say "$line"
      fi
    fi
    if ((finished == 0)); then
      show "the first files are compiled, $(clock $((SECONDS - begin))) so far"
      continue
    fi
    left=$(((SECONDS - begin) * (total - finished) / finished))
    show "$((100 * finished / total)) %: $finished of $total steps in $(clock $((SECONDS - begin))), about $(clock "$left") left"
  done
  [[ ! -t 1 ]] || printf '\r\e[K'
  ((total == 0)) || say "   $finished of $total steps in $(clock $((SECONDS - begin)))"
}

# ctest | follow_tests: a line for each test that ended, and which are running where none ends.
follow_tests() {
  local line unfinished='' begin=$SECONDS shown=$SECONDS status names
  local -A running=()
  while true; do
    status=0
    next_line 1 || status=$?
    ((status != 1)) || break
    if ((status == 0)); then
      if [[ $line =~ ^\ *Start\ +[0-9]+:\ (.+)$ ]]; then
        running[${BASH_REMATCH[1]}]=$SECONDS
      else
        [[ ! $line =~ ^\ *[0-9]+/[0-9]+\ Test\ +#[0-9]+:\ ([^ ]+) ]] || unset "running[${BASH_REMATCH[1]}]"
        say "$line"
      fi
    fi
    names=$(printf '%s\n' "${!running[@]}" | sort | paste -sd ' ')
    show "running: $names; $(clock $((SECONDS - begin))) so far"
  done
  [[ ! -t 1 ]] || printf '\r\e[K'
}
