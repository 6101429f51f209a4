/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Slurm tells a job of its allocation, as the environment of the relay: the agent reads it
 * there and shows it to a restored session, whose processes still have the one of an earlier run.
 */
#include <string.h>

#include "plugin.h"

#define MOST 512

static const char *const NAMES[] = {
	"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",		     "GPU_DEVICE_ORDINAL",
	"ZE_AFFINITY_MASK",	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "HOSTNAME",
};

/* Of Slurm's: a token that some submit with, what slurmstepd itself takes away again before the
 * job begins, and the PID of the relay. */
static const char *const LEFT_OUT[] = {
	"SLURM_JWT=", "SLURM_RLIMIT_", "SLURM_PRIO_PROCESS=", "SLURM_UMASK=", "SLURM_SPANK_",
	"SLURM_TASK_PID=",
};

static int begins(const char *entry, const char *start)
{
	return strncmp(entry, start, strlen(start)) == 0;
}

static int is_named(const char *entry, const char *name)
{
	return begins(entry, name) && entry[strlen(name)] == '=';
}

/* Nothing else of the user's. */
static int of_allocation(const char *entry)
{
	if (begins(entry, "SLURM")) {
		for (size_t i = 0; i < sizeof(LEFT_OUT) / sizeof(LEFT_OUT[0]); i++)
			if (begins(entry, LEFT_OUT[i]))
				return 0;
		return 1;
	}
	for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
		if (is_named(entry, NAMES[i]))
			return 1;
	return 0;
}

char **relay_environment(spank_t spank)
{
	static char *list[MOST + 3] = {"PATH=/usr/bin:/bin", "LANG=C"};
	char **environment = NULL;
	size_t used = 2;

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		environment = NULL;
	for (; environment != NULL && *environment != NULL && used < MOST + 2; environment++)
		if (of_allocation(*environment))
			list[used++] = *environment;
	list[used] = NULL;
	return list;
}
