/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The relay: Slurm's task process. It waits for the job's first process, passes signals and
 * exit statuses between Slurm and reclaim-init, and outlives the tree while that is on disk.
 */
#ifndef RECLAIM_RELAY_H
#define RECLAIM_RELAY_H

#include <sys/types.h>

/* `child` is 0 where a restore is awaited. Never returns except with the exit code to use. */
int relay_run(int channel, pid_t child);

#endif
