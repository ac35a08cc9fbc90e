#!/usr/bin/env bash
# A Slurm cluster of this one machine, for as long as a command runs in it: slurm_local.sh [COMMAND ...]
# The command sees srun, sbatch and the others; without one, two ranks train the smoke configuration.
# Real munged, slurmctld and slurmd in a temporary folder: no systemd, no cgroups, nothing in /etc, and no
# root unless packages are missing. Everything is ended when the command ends, whose exit code it returns.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

install_missing slurm-wlm munge >&2
PATH=$PATH:/usr/sbin # Debian keeps the daemons there

if [ $# -eq 0 ]; then
  set -- srun --ntasks=2 build/cpu/fovea train configs/smoke/lm.yaml train.device=cpu out_dir=runs/slurm
fi

folder=$(mktemp -d)
chmod 755 "$folder" # munged trusts no socket that others cannot reach
name=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf

free_port() { # that nobody uses now
  local port
  while :; do
    port=$((20000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

pids=()
# A step that ends tells slurmctld, and munged vouches for it: the steps go first, then the daemons in the
# reverse order of their start. Each has ten seconds.
finish() {
  local i pid
  scancel --me 2>/dev/null || true
  for i in $(seq 100); do
    compgen -G "$folder/spool/${name}_*" >/dev/null || break # the sockets of the steps
    sleep 0.1
  done
  for ((i = ${#pids[@]} - 1; i >= 0; --i)); do
    pid=${pids[i]}
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap finish EXIT

fail() {
  echo "error: $1" >&2
  tail -n 20 "$folder"/*.log >&2
  exit 1
}

# start PROGRAM [argument ...]: in the background, its words into a log file.
start() {
  "$@" >>"$folder/$1.log" 2>&1 &
  pids+=($!)
}

# await COMMAND ...: until it succeeds, half a minute at most.
await() {
  local i
  for i in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "the local Slurm does not start: '$*' does not succeed"
}

cat >"$SLURM_CONF" <<CONF
ClusterName=local
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
# A container has no cgroups to give.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=60
# As many CPUs as tasks may be asked for, whatever the machine has.
SlurmdParameters=config_overrides
NodeName=$name NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=local Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF

mkdir "$folder/state" "$folder/spool"
(umask 077 && head -c 64 /dev/urandom >"$folder/munge.key")
start munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
  --pid-file="$folder/munge.pid" --log-file="$folder/munge.log" --seed-file="$folder/munge.seed"
await munge --no-input --socket="$folder/munge.socket"
start slurmctld -D
start slurmd -D -N "$name"
await srun --immediate=1 true

code=0
"$@" || code=$?
exit "$code"
