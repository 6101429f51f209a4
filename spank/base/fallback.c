/* SPDX-License-Identifier: Apache-2.0 */
#include "fallback.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#include "message.h"

#define SCONTROL_SECONDS 60

static void take(struct fallback *fallback, const char *key, const char *value)
{
	int64_t seconds;

	if (strlen(value) > PATH_LONGEST)
		return;
	if (strcmp(key, "store") == 0 && plain_path(value))
		strcpy(fallback->store, value);
	else if (strcmp(key, "cluster") == 0 && value[0] != '.' && strchr(value, '/') == NULL)
		strcpy(fallback->cluster, value);
	else if (strcmp(key, "scontrol") == 0 && plain_path(value))
		strcpy(fallback->scontrol, value);
	else if (strcmp(key, "slurm_conf") == 0 && plain_path(value))
		strcpy(fallback->slurm_conf, value);
	else if (strcmp(key, "private_tmp") == 0 && plain_path(value))
		strcpy(fallback->private_tmp, value);
	else if (strcmp(key, "block_io_uring") == 0)
		fallback->block_io_uring = strcmp(value, "1") == 0;
	else if (strcmp(key, "remote") == 0)
		fallback->remote = strcmp(value, "1") == 0;
	else if (strcmp(key, "held_state") == 0)
		fallback->special_exit = strcmp(value, "SpecialExit") == 0;
	else if (strcmp(key, "restore_wait") == 0) {
		char whole[32];

		/* Whole seconds are enough; the agent may write 120.0. */
		snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(value, "."), value);
		if (parse_number(whole, 0, 86400, &seconds) == 0)
			fallback->restore_wait_ms = seconds * 1000;
	}
}

int fallback_read(struct fallback *fallback, const char *state_dir, struct fault *fault)
{
	char path[PATH_LONGEST + 32];
	char text[8192];
	char *line, *rest = text;

	memset(fallback, 0, sizeof(*fallback));
	strcpy(fallback->scontrol, "/usr/bin/scontrol");
	fallback->special_exit = 1;
	fallback->restore_wait_ms = 120 * 1000;
	snprintf(path, sizeof(path), "%s/plugin.conf", state_dir);
	if (trusted_read(path, text, sizeof(text), fault) < 0)
		return errno == ENOENT ? 0 : -1;
	fallback->known = 1;
	while ((line = strsep(&rest, "\n")) != NULL) {
		char *equals = strchr(line, '=');

		if (equals == NULL || line[0] == '#')
			continue;
		*equals = '\0';
		take(fallback, line, equals + 1);
	}
	return 0;
}

static void run_scontrol(const struct fallback *fallback, char *const argv[])
{
	char slurm_conf[PATH_LONGEST + 16];
	char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", NULL, NULL};

	snprintf(slurm_conf, sizeof(slurm_conf), "SLURM_CONF=%s", fallback->slurm_conf);
	if (fallback->slurm_conf[0] != '\0')
		environment[2] = slurm_conf;
	close_all_but(NULL, 0);
	null_on(0, 2);
	if (chdir("/") != 0)
		_exit(127);
	/* slurmctld may be away: never wait for it longer than until the next try. */
	alarm(SCONTROL_SECONDS / 2);
	execve(argv[0], argv, environment);
	_exit(127);
}

pid_t requeue_hold(const struct fallback *fallback, const char *job, struct fault *fault)
{
	char update[JOB_NAME + 8];
	char *scontrol = (char *)fallback->scontrol;
	char *allow[] = {scontrol, "update", update, "Requeue=1", NULL};
	char *special[] = {scontrol, "requeuehold", "State=SpecialExit", (char *)job, NULL};
	char *plain[] = {scontrol, "requeuehold", (char *)job, NULL};
	pid_t child, first;
	sigset_t none;

	snprintf(update, sizeof(update), "JobId=%.*s", JOB_NAME, job);
	child = fork();
	if (child < 0)
		return fault_set(fault, "couldn't fork: %s", strerror(errno));
	if (child > 0)
		return child;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	alarm(SCONTROL_SECONDS);
	/* Looked at here, since it may lie on a file system whose server is gone. */
	if (trusted_program(scontrol, NULL) != 0)
		_exit(126);
	/* Jobs submitted with --no-requeue can't be requeued by anybody until that is changed. */
	first = fork();
	if (first == 0)
		run_scontrol(fallback, allow);
	if (first > 0)
		while (waitpid(first, NULL, 0) < 0 && errno == EINTR)
			;
	run_scontrol(fallback, fallback->special_exit ? special : plain);
	_exit(127);
}
