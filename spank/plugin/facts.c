/* SPDX-License-Identifier: Apache-2.0 */
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

#define VALUE_LONGEST 1024

static const char *const PASSED[] = {
	"SLURM_CLUSTER_NAME", "SLURM_JOB_NAME",	  "SLURM_JOB_USER",    "SLURM_JOB_ACCOUNT",
	"SLURM_JOB_PARTITION", "SLURM_JOB_QOS",	  "SLURM_JOB_NUM_NODES", "SLURM_JOB_GPUS",
	"SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_HET_SIZE",
	"SLURM_JOB_ID_HET_GROUP_0",
	"SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
};

static void add_variable(struct message *facts, const char *name, size_t length,
			 const char *value)
{
	char key[MESSAGE_KEY + 1];
	char text[VALUE_LONGEST + 1];

	if (length + strlen("env.") > MESSAGE_KEY)
		return;
	snprintf(key, sizeof(key), "env.%.*s", (int)length, name);
	snprintf(text, sizeof(text), "%s", value);
	message_add(facts, key, text);
}

/* SLURM_GPUS, SLURM_GPUS_PER_NODE and what else Slurm may call them. */
static void add_gpu_variables(struct message *facts, char **environment)
{
	for (; environment != NULL && *environment != NULL; environment++) {
		const char *equals = strchr(*environment, '=');

		if (equals != NULL && strncmp(*environment, "SLURM_GPUS", 10) == 0)
			add_variable(facts, *environment, (size_t)(equals - *environment),
				     equals + 1);
	}
}

/* What the job's environment says of it may be its owner's invention. */
static void name_job(spank_t spank, struct plan *plan)
{
	uint32_t array = 0, task = NO_VAL;

	if (spank_get_item(spank, S_JOB_ARRAY_ID, &array) == ESPANK_SUCCESS && array != 0 &&
	    spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &task) == ESPANK_SUCCESS &&
	    task < NO_VAL)
		snprintf(plan->name, sizeof(plan->name), "%u_%u", array, task);
	else
		snprintf(plan->name, sizeof(plan->name), "%u", plan->job);
}

int gather_facts(spank_t spank, struct plan *plan, struct message *facts)
{
	char value[VALUE_LONGEST + 1];
	char **environment = NULL;

	message_clear(facts);
	if (spank_get_item(spank, S_JOB_ID, &plan->job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &plan->uid) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_GID, &plan->gid) != ESPANK_SUCCESS)
		return -1;
	name_job(spank, plan);
	message_add(facts, "op", "start");
	message_add(facts, "protocol", "1");
	message_addf(facts, "job", "%u", plan->job);
	message_addf(facts, "uid", "%u", (unsigned)plan->uid);
	message_addf(facts, "gid", "%u", (unsigned)plan->gid);
	message_add(facts, "option", chosen_option());
	for (size_t i = 0; i < sizeof(PASSED) / sizeof(PASSED[0]); i++)
		if (spank_getenv(spank, PASSED[i], value, sizeof(value)) == ESPANK_SUCCESS)
			add_variable(facts, PASSED[i], strlen(PASSED[i]), value);
	if (spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS)
		add_gpu_variables(facts, environment);
	return 0;
}
