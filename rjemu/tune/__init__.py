"""Budget experiments: a job's time over budgets of CPUs and allocations of processes."""
