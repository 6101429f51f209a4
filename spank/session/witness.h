/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else got a signal? Slurm signals the task process alone, its process group, or every
 * process of the step, and nothing tells the receiver which. A witness blocks all signals and
 * remembers when each last came: one in the relay's process group tells a signal to the group
 * from one to the relay alone; reclaim-init, outside the group, tells one to the whole step.
 */
#ifndef RECLAIM_WITNESS_H
#define RECLAIM_WITNESS_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#define SIGNALS 65
/* Slurm's loop over the processes of a step takes less. */
#define SAME_SIGNAL_MS 500

struct hearing {
	int fd; /* of signalfd */
	int64_t last[SIGNALS];
};

/* Blocks every signal. 0 or -1. */
int hearing_open(struct hearing *hearing);

/* Takes in what has come. SIGCHLD is reported by returning 1. */
int hearing_drain(struct hearing *hearing);

int heard_lately(const struct hearing *hearing, int number);

/* Forks a witness in this process group; it ends when `fd` is closed. Its PID or -1. */
pid_t witness_start(int *fd);

/* Did the witness get this signal, too? */
int witness_heard(int fd, int number);

#endif
