#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian package and tries it in a bare Debian 12: a fresh root folder by debootstrap, `apt install`, then the
# program as an ordinary user, from a folder of that user. Needs root, a Debian mirror and some 700 MB below build/.
#   scripts/try_package.sh                    build/package; CUDA is built in where nvcc is found
#   scripts/try_package.sh --no-cuda          without CUDA
#   scripts/try_package.sh --deb FILE         an existing package
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

build=build/package root=build/package-root mirror=http://deb.debian.org/debian
deb='' configure=()
while (($#)); do
  case $1 in
    --no-cuda) build=build/package-cpu configure=(-DTRIREME_CUDA=OFF) ;;
    --deb) deb=${2:?--deb wants a file}; shift ;;
    -h | --help) sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "try_package.sh: unknown argument '$1'; known are --no-cuda, --deb and --help" >&2; exit 2 ;;
  esac
  shift
done
if [ "$(id -u)" -ne 0 ]; then
  echo "try_package.sh: debootstrap and chroot need root" >&2
  exit 1
fi

install_packages "${build_packages[@]}" "${package_packages[@]}" debootstrap
if [ -z "$deb" ]; then
  echo "== building the package"
  cmake --preset release -B "$build" -DTRIREME_TESTS=OFF ${configure[@]+"${configure[@]}"} 2>&1 >/dev/null | follow "configuring"
  NINJA_STATUS=$ninja_status cmake --build "$build" --target trireme 2>&1 | follow_build
  rm -f "$build"/trireme_*.deb
  (cd "$build" && cpack)
  deb=$(ls "$build"/trireme_*.deb)
fi
dpkg-deb --info "$deb"
dpkg-deb --contents "$deb" | awk '{print $3, $6}'

echo "== a bare Debian 12"
rm -rf "$root"
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" || {
  tail -5 "$root.log" >&2
  exit 1
}
cp "$deb" "$root/trireme.deb"
cp configs/kjv.toml "$root/kjv.toml"
cat >"$root/as_root.sh" <<'TEXT'
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends /trireme.deb
useradd --create-home --shell /bin/bash rower
su - rower -c 'bash -eux /as_user.sh'
apt-get remove -y -qq trireme
test ! -e /usr/bin/trireme
test ! -e /usr/share/trireme
TEXT
cat >"$root/as_user.sh" <<'TEXT'
mkdir work && cd work
trireme doctor
test -z "$(ldd /usr/bin/trireme | grep 'not found')"
trireme plan --model llama-1b --machine h200 --gpus 8 --batch 512 --seq-len 4096 | tail -3
yes 'the rowers of the old ship pull, and pull again' | head -2000 >text.txt
trireme data build text.txt --output text
trireme data inspect text
cp /usr/share/trireme/configs/kjv.toml mine.toml
short='--training.dataset_path=text --training.steps=6 --training.seq_len=64 --lr_scheduler.warmup_steps=2'
trireme train mine.toml $short --job.dump_folder=one
trireme launch -n 2 mine.toml $short --job.dump_folder=two
trireme eval --weights one/weights/final --data text.txt --seq 64 --limit 5
trireme generate one/weights/final --prompt 'row' --tokens 8
trireme train mine.toml $short --device cuda && exit 1
echo "the package works"
TEXT
# Mounts in a private namespace vanish with it.
unshare --mount bash -c 'mount -t proc proc "$1/proc" && chroot "$1" bash /as_root.sh' \
  try "$root"
rm -rf "$root" "$root.log"
echo "== $deb works in a bare Debian 12"
