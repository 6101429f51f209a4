/* SPDX-License-Identifier: Apache-2.0 */
/* What needs root, and what must be seen from outside the session, comes first. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../base/cgroup.h"
#include "../base/descriptors.h"
#include "../base/filter.h"
#include "exec.h"

/* As the shell has it. */
#define CANT_START 126
#define NOT_FOUND 127

static int prepare(const struct request *request, struct entrance *entrance, struct fault *fault)
{
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rv = open_entrance(request, entrance, fault);

	if (request->tracer)
		never_for_want_of_memory();
	for (size_t i = 0; i < request->cgroups && rv == 0; i++)
		rv = cgroups_join(proc, request->cgroups_of[i], fault);
	if (rv == 0 && request->affinity_of != 0)
		rv = take_affinity(request->affinity_of, fault);
	if (rv == 0 && request->rlimits_of != 0)
		rv = take_limits(request->rlimits_of, fault);
	if (rv == 0 && request->has_offsets)
		rv = set_time_offsets(request, fault);
	if (rv == 0)
		rv = go_in(entrance, fault);
	if (rv == 0 && request->block_io_uring)
		rv = block_io_uring(fault);
	return rv;
}

static int run(const struct request *request, struct fault *fault)
{
	char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", "HOME=/nonexistent",
			       NULL};

	if (drop_rights(request, fault) != 0)
		return CANT_START;
	/* Where we were is outside, and may be nobody's business inside. */
	if (chdir("/") != 0) {
		fault_set(fault, "couldn't change to /: %s", strerror(errno));
		return CANT_START;
	}
	/* SIGKILL can't be passed on, but it must not leave the command running without us. */
	if (request->join_pid_ns || request->has_offsets)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	default_signals();
	/* Then it ends by itself, and lets go first. */
	if (request->tracer)
		signal(SIGPIPE, SIG_IGN);
	close_all_but(request->kept, request->kept_count);
	execve(request->command[0], request->command, environment);
	fault_set(fault, "couldn't run %s: %s", request->command[0], strerror(errno));
	return errno == ENOENT ? NOT_FOUND : CANT_START;
}

/* Entering a PID namespace, or one of time just made, is for children only. */
static int fork_inside(const struct request *request, struct fault *fault)
{
	sigset_t all;
	pid_t child;

	if (!request->join_pid_ns && !request->has_offsets)
		return 0;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	/* SIGCHLD must not be ignored, or there would be nothing to wait for. */
	signal(SIGCHLD, SIG_DFL);
	child = fork();
	if (child < 0)
		return fault_set(fault, "couldn't fork: %s", strerror(errno));
	if (child > 0)
		stand_in(child);
	return 0;
}

int main(int argc, char **argv)
{
	static struct request request;
	struct entrance entrance;
	struct fault fault = {""};
	int code = CANT_START;

	if (read_request(&request, argc, argv, &fault) != 0) {
		fprintf(stderr, "reclaim-exec: %s\n%s", fault.text, USAGE);
		return 2;
	}
	if (prepare(&request, &entrance, &fault) == 0 && fork_inside(&request, &fault) == 0)
		code = run(&request, &fault);
	dprintf(2, "reclaim-exec: %s\n", fault.text);
	return code;
}
