/* SPDX-License-Identifier: Apache-2.0 */
/* Without an agent: only a job that may have an image is held back. */
#include <stdio.h>
#include <string.h>

#include "../base/fallback.h"
#include "plugin.h"

/* The highest PID in the image is not known here; three quarters of all PIDs lie below this. */
static int64_t high_last_pid(void)
{
	FILE *file = fopen("/proc/sys/kernel/pid_max", "re");
	long most = 0;

	if (file != NULL && fscanf(file, "%ld", &most) != 1)
		most = 0;
	if (file != NULL)
		fclose(file);
	return most >= 1024 ? most / 4 * 3 : 20000;
}

void guess_plan(const struct arguments *arguments, struct plan *plan, struct fault *fault)
{
	struct fallback fallback;
	struct fault first = *fault;
	struct fault why = {""};
	int found = -1;

	if (fallback_read(&fallback, arguments->state, &why) == 0)
		found = image_exists(&fallback, plan, &why);
	if (found < 0)
		fault_set(fault, "%.240s; %.240s", first.text, why.text);
	plan->mode = found == 0 ? MODE_IGNORE : MODE_RESTORE;
	plan->guessed = 1;
	plan->last_pid = high_last_pid();
	plan->block_io_uring = fallback.block_io_uring;
	if (fallback.private_tmp[0] != '\0')
		snprintf(plan->private_tmp, sizeof(plan->private_tmp), "%.200s/slurm-reclaim-%u",
			 fallback.private_tmp, plan->job);
}
