#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A private Slurm cluster of this one machine, for tests of runs under srun.
#   slurm.sh start FOLDER [PROCESS]   starts munged, slurmctld and slurmd with all their files in
#                                     FOLDER; `SLURM_CONF=FOLDER/slurm.conf srun ...` then uses
#                                     them. They end when PROCESS, if given, has ended.
#   slurm.sh stop FOLDER              ends them and every job; may be called at any time
# Needs the packages slurm-wlm and munge, and root, since slurmd starts its jobs' processes as root.
set -euo pipefail

usage() {
  sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# A port that is free now.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_until SECONDS COMMAND...
wait_until() {
  local tries=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.1
  done
}

write_configuration() {
  local host
  host=$(hostname -s)
  # Tasks are counted by CPUs that this machine need not have: four ranks run on two cores.
  cat >"$folder/slurm.conf" <<CONF
ClusterName=stops
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=30
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
  echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"
}

start() {
  mkdir -p "$folder/state" "$folder/spool"
  chmod 755 "$folder"
  (umask 077 && dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none)
  write_configuration
  # --force: the folder lies below /tmp, which everyone may write to.
  munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
    --seed-file="$folder/munged.seed" >/dev/null 2>&1 || fail "munged does not start"
  slurmctld -c -f "$folder/slurm.conf" >/dev/null 2>&1 || fail "slurmctld does not start"
  slurmd -c -f "$folder/slurm.conf" -N "$(hostname -s)" >/dev/null 2>&1 || fail "slurmd does not start"
  export SLURM_CONF=$folder/slurm.conf
  wait_until 30 timeout 10 srun --immediate=2 true || fail "the cluster does not start a job"
  [ -z "$owner" ] || setsid "$0" watch "$folder" "$owner" </dev/null >/dev/null 2>&1 &
}

# fail MESSAGE
fail() {
  echo "slurm.sh: $1; the logs end with:" >&2
  tail -n 5 "$folder"/*.log >&2
  stop
  exit 1
}

# Stops the cluster after the process that it was started for, however that one ended.
watch() {
  while [ -e "/proc/$owner" ]; do sleep 1; done
  stop
}

stop() {
  local name id
  [ -e "$folder/slurmctld.pid" ] &&
    SLURM_CONF=$folder/slurm.conf timeout 5 scancel --full --signal=KILL --user="$(id -un)" 2>/dev/null || true
  for name in slurmd slurmctld munged; do
    [ -e "$folder/$name.pid" ] || continue
    id=$(cat "$folder/$name.pid")
    kill "$id" 2>/dev/null || continue
    wait_until 10 test ! -e "/proc/$id" || kill -9 "$id" 2>/dev/null || true
  done
}

[ $# -eq 2 ] || [ $# -eq 3 ] || usage
mkdir -p "$2"
folder=$(cd "$2" && pwd)
owner=${3:-}
case $1 in
  start) start ;;
  watch) watch ;;
  stop) stop ;;
  *) usage ;;
esac
