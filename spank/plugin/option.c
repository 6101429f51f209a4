/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

static const char *chosen = "";

const char *chosen_option(void)
{
	return chosen;
}

static int take_option(int value, const char *text, int remote)
{
	(void)value;
	if (text != NULL && strcmp(text, "on") == 0)
		chosen = "on";
	else if (text != NULL && strcmp(text, "off") == 0)
		chosen = "off";
	else {
		/* On the node it is too late to refuse: the job must start either way. */
		if (!remote)
			slurm_error("reclaim: --reclaim must be on or off, not \"%s\"",
				    text == NULL ? "" : text);
		return remote ? 0 : -1;
	}
	return 0;
}

/* Slurm passes an option on in the environment, from which an sbatch within the job, or within the
 * shell of a salloc, would take it up (seen with 24.11): what its user has not said. */
static void forget_inherited(void)
{
	unsetenv("_SLURM_SPANK_OPTION_reclaim_reclaim");
	unsetenv("SLURM_SPANK__SLURM_SPANK_OPTION_reclaim_reclaim");
}

/* Registered by hand: the static table spank_options[] is not read by sbatch. */
void register_option(spank_t spank)
{
	static struct spank_option option = {
		.name = "reclaim",
		.arginfo = "on|off",
		.usage = "[reclaim] hibernate this job while it is idle (on) or never (off)",
		.has_arg = 1,
		.val = 0,
		.cb = take_option,
	};

	/* In sbatch and salloc, before they look at their command line. */
	if (spank_context() == S_CTX_ALLOCATOR)
		forget_inherited();
	if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
		slurm_error("reclaim: couldn't register the option --reclaim");
}
