/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points. Their return codes mean nothing here: the plugin is optional, so Slurm
 * would go on regardless, and a job must never fail because of us.
 */
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

SPANK_PLUGIN(reclaim, 1);

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
#define TOO_OLD 1
#else
#define TOO_OLD 0
#endif

static struct plan plan;

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	register_option(spank);
	if (TOO_OLD && spank_context() == S_CTX_SLURMD)
		slurm_error("reclaim: this Slurm is older than 23.11, for which it was not tested");
	return 0;
}

static int is_batch_script(spank_t spank)
{
	uint32_t step = 0;

	return spank_context() == S_CTX_REMOTE &&
	       spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       step == SLURM_BATCH_SCRIPT;
}

/* slurmstepd sets SLURM_RESTART_COUNT later, and only if it isn't 0. What is there now came
 * with the user's environment and would be taken for ours. */
static void set_aside_restart_count(spank_t spank)
{
	char text[32];

	if (spank_getenv(spank, "SLURM_RESTART_COUNT", text, sizeof(text)) != ESPANK_SUCCESS)
		return;
	plan.stale_count = strdup(text);
	spank_unsetenv(spank, "SLURM_RESTART_COUNT");
}

static void prepare(spank_t spank, const struct arguments *arguments, struct message *facts)
{
	struct fault fault = {""};

	if (gather_facts(spank, &plan, facts) != 0) {
		slurm_error("reclaim: couldn't learn the job's id from Slurm");
		return;
	}
	if (ask_agent(arguments, facts, &plan, &fault) != 0) {
		guess_plan(arguments, &plan, &fault);
		leave_note(arguments, &plan, facts, fault.text);
	}
	if (plan.mode == MODE_IGNORE)
		return;
	if (open_session(arguments, &plan, &fault) != 0) {
		if (!plan.guessed)
			leave_note(arguments, &plan, facts, fault.text);
		if (plan.mode == MODE_FRESH) {
			plan.mode = MODE_IGNORE;
			return;
		}
		slurm_error("reclaim: job %u stays parked: %s", plan.job, fault.text);
		if (park(arguments, &plan, &fault) != 0)
			slurm_error("reclaim: job %u: %s", plan.job, fault.text);
	}
	set_aside_restart_count(spank);
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
	struct arguments arguments;
	struct message *facts;

	if (!is_batch_script(spank))
		return 0;
	facts = malloc(sizeof(*facts));
	if (facts == NULL)
		return 0;
	memset(&plan, 0, sizeof(plan));
	plan.last_pid = 299;
	plan.channel = -1;
	plan.descriptors = -1;
	read_arguments(&arguments, argc, argv);
	prepare(spank, &arguments, facts);
	free(facts);
	return 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	struct arguments arguments;

	if (plan.mode == MODE_IGNORE || !is_batch_script(spank))
		return 0;
	read_arguments(&arguments, argc, argv);
	take_over(spank, &arguments, &plan);
	return 0;
}
