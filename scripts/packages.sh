# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # the lists are used by the scripts that source this file
# Sourced by test.sh, quickstart.sh, scripts/try_package.sh and the Containerfile: what Trireme is built from, by Debian
# package, and how it is built.
# shellcheck source=scripts/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"

build_packages=(cmake g++ ninja-build libopenblas-dev libfmt-dev libspdlog-dev nlohmann-json3-dev
                libcli11-dev libtomlplusplus-dev libgloo-dev libxxhash-dev
                zlib1g-dev libzstd-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev
                libjs-dygraphs)
# mold links the 40 test programs in seconds; without it GNU ld does.
test_packages=(libgtest-dev mold)
# What cpack needs for a Debian package.
package_packages=(dpkg-dev file)
# Launchers and schedulers that ./test.sh --full runs Trireme under.
launcher_packages=(openmpi-bin mpich slurm-wlm munge python3-torch)

# install_packages PACKAGE...: installs what is missing if that is possible without a password;
# otherwise prints the command to run and ends the script.
install_packages() {
  command -v dpkg-query >/dev/null || return 0
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "$0: packages are missing and this user may not install them. Run:" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "== installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq 2>&1 | follow "reading the lists of packages"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" 2>&1 >/dev/null | follow "installing"
}

# try_to_install PACKAGE...: prints a warning for each package that cannot be installed, and continues.
try_to_install() {
  local package
  for package in "$@"; do
    (install_packages "$package") || echo "== $package cannot be installed: tests that need it are SKIPPED"
  done
}

# Whether this machine has an NVIDIA GPU.
has_gpu() {
  compgen -G '/dev/nvidia[0-9]*' >/dev/null ||
    { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }
}

# build PRESET [-DOPTION=VALUE...] [TARGET...]: configures with the options, and with the tests unless they say otherwise;
# builds the targets, or everything. REQUIRES: set -o pipefail.
build() {
  local preset=$1 options=(-DTRIREME_TESTS=ON)
  shift
  while [[ ${1:-} == -D* ]]; do
    options+=("$1")
    shift
  done
  echo "== building $preset${1:+: $*}"
  cmake --preset "$preset" "${options[@]}" 2>&1 >/dev/null | follow "configuring"
  NINJA_STATUS=$ninja_status cmake --build --preset "$preset" ${1+--target "$@"} 2>&1 | follow_build
}
