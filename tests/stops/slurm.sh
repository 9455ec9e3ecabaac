#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A private Slurm cluster of this one machine, for tests of runs under srun.
#   slurm.sh start FOLDER [PROCESS [NODES]]   starts munged, slurmctld and as many slurmd as NODES,
#                                     1 by default, with all their files in FOLDER;
#                                     `SLURM_CONF=FOLDER/slurm.conf srun ...` then uses them. They
#                                     end when PROCESS, if given, has ended.
#   slurm.sh stop FOLDER              ends them and every job; may be called at any time
# SLURM_CRED_EXPIRE: seconds that a requeued job waits; default: 120. FOLDER/more.conf: further lines of
# the configuration.
# Needs the packages slurm-wlm and munge, and root, since slurmd starts its jobs' processes as root.
set -euo pipefail

usage() {
  sed -n '3,11s/^# \{0,1\}//p' "$0" >&2
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

# All are this machine. The first has its name, which the others know it by.
node_names() {
  local node
  hostname -s
  for ((node = 2; node <= nodes; node++)); do echo "$(hostname -s)-node$node"; done
}

write_configuration() {
  local host name
  host=$(hostname -s)
  # Tasks are counted by CPUs that this machine need not have: four ranks run on two cores.
  cat >"$folder/slurm.conf" <<CONF
ClusterName=stops
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket${SLURM_CRED_EXPIRE:+,cred_expire=$SLURM_CRED_EXPIRE}
CredType=cred/munge
SlurmctldPort=$(free_port)
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
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
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
  for name in $(node_names); do
    echo "NodeName=$name NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=16 State=UNKNOWN"
  done >>"$folder/slurm.conf"
  if [ -e "$folder/more.conf" ]; then cat "$folder/more.conf" >>"$folder/slurm.conf"; fi
  echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"
}

start() {
  local name
  mkdir -p "$folder/state"
  for name in $(node_names); do mkdir -p "$folder/spool-$name"; done
  chmod 755 "$folder"
  (umask 077 && dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none)
  write_configuration
  # --force: the folder lies below /tmp, which everyone may write to.
  munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
    --seed-file="$folder/munged.seed" >/dev/null 2>&1 || fail "munged does not start"
  slurmctld -c -f "$folder/slurm.conf" >/dev/null 2>&1 || fail "slurmctld does not start"
  for name in $(node_names); do
    slurmd -c -f "$folder/slurm.conf" -N "$name" >/dev/null 2>&1 || fail "slurmd does not start"
  done
  export SLURM_CONF=$folder/slurm.conf
  wait_until 30 timeout 10 srun --immediate=2 -N "$nodes" true || fail "the cluster does not start a job"
  # Not in a list with ||: its shell would hold the output of this script open.
  if [ -n "$owner" ]; then setsid "$0" watch "$folder" "$owner" </dev/null >/dev/null 2>&1 & fi
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
  for name in "$folder"/slurmd-*.pid "$folder/slurmctld.pid" "$folder/munged.pid"; do
    [ -e "$name" ] || continue
    id=$(cat "$name")
    kill "$id" 2>/dev/null || continue
    wait_until 10 test ! -e "/proc/$id" || kill -9 "$id" 2>/dev/null || true
  done
}

[ $# -ge 2 ] && [ $# -le 4 ] || usage
mkdir -p "$2"
folder=$(cd "$2" && pwd)
owner=${3:-}
nodes=${4:-1}
case $1 in
  start) start ;;
  watch) watch ;;
  stop) stop ;;
  *) usage ;;
esac
