/* SPDX-License-Identifier: Apache-2.0 */
/* What holds without an agent: plugin.conf, written by the agent while it was there. */
#ifndef RECLAIM_FALLBACK_H
#define RECLAIM_FALLBACK_H

#include <stdint.h>
#include <sys/types.h>

#include "fault.h"
#include "trust.h"

struct fallback {
	int known; /* plugin.conf was there and could be read */
	char store[PATH_LONGEST + 1];
	char cluster[PATH_LONGEST + 1];
	char scontrol[PATH_LONGEST + 1];
	char slurm_conf[PATH_LONGEST + 1];
	char private_tmp[PATH_LONGEST + 1]; /* the site's directory, not the session's */
	int block_io_uring;
	int remote; /* the store here is not the whole of it */
	int special_exit;
	int64_t restore_wait_ms;
};

/* Defaults where the file says nothing. 0; -1 if there is a file that can't be used. */
int fallback_read(struct fallback *fallback, const char *state_dir, struct fault *fault);

/* A job as Slurm writes it, 123 or 123_4 for a task of an array, without the end of the string. To
 * Slurm the bare number of an array's last task is the whole array. */
#define JOB_NAME 23

/* Runs `scontrol requeuehold` for the job as root in a child. Its PID or -1. */
pid_t requeue_hold(const struct fallback *fallback, const char *job, struct fault *fault);

#endif
