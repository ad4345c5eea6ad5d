#!/usr/bin/env bash
# A budget experiment under Slurm: an array for each budget of CPUs, and in it a task for each allocation of processes.
#
#   scripts/slurm_array.sh JOB.toml DIR BUDGETS [SBATCH OPTION ...]
#   scripts/slurm_array.sh gemm/job.toml results 1,2,4,8 --partition=preempt --time=2:00:00
#
# Afterwards `rjemu tune --merge DIR` makes a table, plots and a configuration of what the tasks have reported. A task that is
# preempted, or runs out of time, writes a checkpoint and is requeued; it goes on from there. docs/batch.md tells more.
#
# Environment: RJEMU, the command (default: rjemu); ALLOCATIONS, E/D/H,... to try in place of `rjemu tune`'s own choice;
# REPEAT, runs of each (3); EVERY, the time between checkpoints (10m).
set -euo pipefail

read -ra rjemu <<<"${RJEMU:-rjemu}"
repeat=${REPEAT:-3}
every=${EVERY:-10m}

# Plans the experiment and submits it.
submit() {
  if (($# < 3)); then
    echo "usage: $0 JOB.toml DIR BUDGETS [SBATCH OPTION ...]" >&2
    exit 2
  fi
  local job dir budgets=$3 budget tasks
  job=$(realpath -- "$1")
  mkdir -p -- "$2"
  dir=$(realpath -- "$2")
  shift 3
  "${rjemu[@]}" tune "$job" --budgets "$budgets" ${ALLOCATIONS:+--allocations "$ALLOCATIONS"} --plan >"$dir/plan"
  cut -d ' ' -f 1 "$dir/plan" | sort -nu | while read -r budget; do
    tasks=$(grep -c "^$budget " "$dir/plan")
    # The batch shell, not the job step, gets USR1 a minute before the end: it has to know that there is a checkpoint to wait for.
    sbatch --job-name="rjemu-$budget" --array="0-$((tasks - 1))" --ntasks=1 --cpus-per-task="$budget" \
      --requeue --signal=B:USR1@60 --open-mode=append --output="$dir/slurm-%A_%a.log" \
      "$@" "$0" task "$job" "$dir" "$budget"
  done
}

# Runs the array's task for one allocation: as often as asked for, less what it has done before it was requeued.
run_task() {
  local job=$1 dir=$2 budget=$3 allocation number own
  allocation=$(grep "^$budget " "$dir/plan" | sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" | cut -d ' ' -f 2)
  trap forward USR1 TERM
  for ((number = 1; number <= repeat; number++)); do
    own=$dir/$budget-${allocation//\//-}/$number
    if [[ ! -e $own/done ]]; then
      run_once "$job" "$budget" "$allocation" "$own"
      touch "$own/done"
    fi
  done
}

ending= # set once this task has been told that it ends soon
step=   # what it waits for

forward() {
  ending=yes
  [[ -z $step ]] || kill -USR1 "$step" 2>/dev/null || true
}

# Runs the job, or what is left of it, with everything that it writes in a folder of its own.
run_once() {
  local job=$1 budget=$2 allocation=$3 own=$4 engines dispatch helpers command status=0
  [[ -z $ending ]] || requeue
  IFS=/ read -r engines dispatch helpers <<<"$allocation"
  mkdir -p -- "$own"
  if [[ -e $own/checkpoint ]]; then
    command=(resume "$own/checkpoint")
  else
    command=(run "$job" --checkpoint "$own/checkpoint" --every "$every" --report "$own/report.json" --output-dir "$own"
      --budget "$budget" --set "num_threads=$engines" --set "cpu_dispatch_threads=$dispatch"
      --set "async_helper_threads=$helpers")
  fi
  srun --ntasks=1 --cpus-per-task="$budget" --cpu-bind=cores "${rjemu[@]}" "${command[@]}" &
  step=$!
  [[ -z $ending ]] || forward # the signal may have come before there was a step
  # A signal ends `wait`, but not what it waits for, whose status it gives however often it is asked.
  while wait "$step"; kill -0 "$step" 2>/dev/null; do :; done
  wait "$step" || status=$?
  step=
  case $status in
    0) ;;
    # 75: there is a checkpoint. Killed by USR1 or TERM: rjemu had not begun yet, and has nothing to lose.
    75 | $((128 + 10)) | $((128 + 15))) requeue ;;
    *) exit "$status" ;;
  esac
}

# Puts this task, and no other of its array, back into the queue.
requeue() {
  # Not SLURM_JOB_ID: that of one of the tasks is the array's, and would requeue all of them.
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  exit 75
}

if [[ ${1:-} == task ]]; then
  shift
  run_task "$@"
else
  submit "$@"
fi
