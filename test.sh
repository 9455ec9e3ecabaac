#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Trireme and runs its tests, from a bare clone.
#   ./test.sh          the suite that every change must pass (budget: docs/testing.md)
#   ./test.sh --full   also everything under AddressSanitizer + UndefinedBehaviorSanitizer and under ThreadSanitizer
set -euo pipefail
cd "$(dirname "$0")"

packages=(cmake g++ ninja-build libopenblas-dev libfmt-dev libspdlog-dev nlohmann-json3-dev
          libcli11-dev libtomlplusplus-dev libgtest-dev)
full=0

usage() {
  sed -n '3,5s/^# \{0,1\}//p' "$0"
}

for argument in "$@"; do
  case "$argument" in
    --full) full=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; known are --full and --help" >&2; exit 2 ;;
  esac
done

# Installs what is missing where that is possible without a password; otherwise says what to run.
install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "test.sh: packages are missing and this user may not install them. Run:" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "== installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  echo "== building $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" ${1+--target "$@"} -- --quiet
}

command -v dpkg-query >/dev/null && install_packages
build release
echo "== testing release"
ctest --preset release -j "$(nproc)"

# The arithmetic of shards is where a wrong index would corrupt a checkpoint: always under the sanitizers too.
build asan spec_test
echo "== testing shards under asan"
./build/asan/spec_test --gtest_brief=1

if [ "$full" -eq 1 ]; then
  for preset in asan tsan; do
    build "$preset"
    echo "== testing $preset"
    ctest --preset "$preset" -j "$(nproc)"
  done
fi
echo "== all tests passed"
