/* SPDX-License-Identifier: Apache-2.0 */
/* What the entry points share: arguments of the plugstack line and the plan for this job. */
#ifndef RECLAIM_PLUGIN_H
#define RECLAIM_PLUGIN_H

#include <slurm/spank.h>
#include <stdint.h>
#include <sys/types.h>

#include "../base/fallback.h"
#include "../base/fault.h"
#include "../base/message.h"
#include "../base/trust.h"

struct arguments {
	char socket[PATH_LONGEST + 1];
	char libexec[PATH_LONGEST + 1];
	char state[PATH_LONGEST + 1]; /* where plugin.conf is */
	char run[PATH_LONGEST + 1];   /* where notes of missed sessions go */
	int64_t timeout_ms;	      /* for the agent's answer */
};

enum mode { MODE_IGNORE, MODE_FRESH, MODE_RESTORE };

struct plan {
	enum mode mode;
	int guessed; /* no agent answered: made from what lies in the store */
	int parked;  /* no session could be made: a root process only holds the job again */
	uint32_t job;
	char name[JOB_NAME + 1]; /* the job's, see fallback.h */
	uid_t uid;
	gid_t gid;
	int block_io_uring;
	int64_t last_pid;
	char private_tmp[PATH_LONGEST + 1];
	int channel;	  /* to reclaim-init, or to the root process of a parked job */
	int descriptors;  /* our /proc/PID/fd: the session's /proc does not show this process */
	pid_t init;	  /* as this process sees it */
	char *stale_count; /* SLURM_RESTART_COUNT that the user happened to submit with */
};

/* arguments.c. Wrong ones are logged and left at their defaults: never a reason to fail. */
void read_arguments(struct arguments *arguments, int argc, char **argv);

/* option.c */
void register_option(spank_t spank);
const char *chosen_option(void); /* "on", "off" or "" */

/* facts.c: the message op=start. 0 or -1. */
int gather_facts(spank_t spank, struct plan *plan, struct message *facts);

/* ask.c: fills the plan; -1 if the agent gave no usable answer. */
int ask_agent(const struct arguments *arguments, const struct message *facts, struct plan *plan,
	      struct fault *fault);

/* guess.c: the plan where no agent answered. The fault says why, and what else went wrong. */
void guess_plan(const struct arguments *arguments, struct plan *plan, struct fault *fault);

/* image.c: 1 there is an image for this job, 0 there is none, -1 can't be told. */
int image_exists(const struct fallback *fallback, const struct plan *plan, struct fault *fault);

/* missed.c: the note for the agent. */
void leave_note(const struct arguments *arguments, const struct plan *plan, struct message *facts,
		const char *problem);

/* session.c: namespaces around reclaim-init, which this process then joins. On failure
 * nothing has changed. */
int open_session(const struct arguments *arguments, struct plan *plan, struct fault *fault);

/* parking.c */
int park(const struct arguments *arguments, struct plan *plan, struct fault *fault);

/* allocation.c: static; what it points to is the job's own. */
char **relay_environment(spank_t spank);

/* takeover.c: returns in the process that goes on to be the job, if there is one. */
void take_over(spank_t spank, const struct arguments *arguments, struct plan *plan);

#endif
