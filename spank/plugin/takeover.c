/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In task_init, already as the user: this process becomes the relay; a child of it, the first
 * process of the session, goes on to be the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../base/descriptors.h"
#include "../base/stream.h"
#include "../session/relay.h"
#include "plugin.h"

#define RELAY_FD 3

static int64_t restart_count(spank_t spank, struct plan *plan)
{
	char text[32] = "";
	int64_t count = 0;

	if (spank_getenv(spank, "SLURM_RESTART_COUNT", text, sizeof(text)) == ESPANK_SUCCESS)
		parse_number(text, 0, 1000000000, &count);
	else if (plan->stale_count != NULL)
		spank_setenv(spank, "SLURM_RESTART_COUNT", plan->stale_count, 1);
	return count;
}

/* The job's first process: as Slurm would have had it, but in the session. */
static void be_the_job(spank_t spank, const struct plan *plan, int report,
		       const sigset_t *mask)
{
	pid_t self = getpid();
	char pid[16];
	ssize_t written;

	setsid();
	/* Daemons that leave their parent stay below the script, inside what is dumped. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	written = write(report, &self, sizeof(self));
	(void)written;
	close(report);
	close(plan->channel);
	/* Slurm set it to the relay's; scripts find their own PID in it. */
	snprintf(pid, sizeof(pid), "%d", (int)self);
	spank_setenv(spank, "SLURM_TASK_PID", pid, 1);
	sigprocmask(SIG_SETMASK, mask, NULL);
}

static pid_t read_pid(int fd)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	pid_t pid = 0;

	while (poll(&entry, 1, 5000) < 0 && errno == EINTR)
		;
	if (read(fd, &pid, sizeof(pid)) != (ssize_t)sizeof(pid))
		return 0;
	return pid;
}

/* Forking may fail for a moment (limits of processes); starting over is not possible here. */
static pid_t fork_patiently(void)
{
	pid_t pid = fork();

	for (int i = 0; pid < 0 && i < 50; i++) {
		usleep(100000);
		pid = fork();
	}
	return pid;
}

static void introduce(const struct plan *plan, int64_t restarts, pid_t child, pid_t inner)
{
	static struct stream stream;
	static struct message message;

	message_clear(&message);
	message_add(&message, "op", "relay");
	message_add(&message, "mode", plan->mode == MODE_FRESH ? "fresh" : "restore");
	message_addf(&message, "restarts", "%lld", (long long)restarts);
	message_addf(&message, "child", "%d", (int)child);
	message_addf(&message, "inner", "%d", (int)inner);
	stream_open(&stream, plan->channel);
	/* A dead reclaim-init shows as the end of the channel in the relay's loop. */
	stream_send(&stream, &message, now_ms() + 5000);
}

/* A program of its own instead of a copy of slurmstepd: small, and clear in ps. */
static void become_relay(spank_t spank, const struct arguments *arguments,
			 const struct plan *plan, pid_t child)
{
	char program[PATH_LONGEST + 32], job[16], child_text[16];
	char *argv[] = {"reclaim-relay", job, child_text, NULL};
	const int kept[] = {0, 1, 2, RELAY_FD};

	snprintf(program, sizeof(program), "%s/reclaim-relay", arguments->libexec);
	snprintf(job, sizeof(job), "%u", plan->job);
	snprintf(child_text, sizeof(child_text), "%d", (int)child);
	if (dup2(plan->channel, RELAY_FD) != RELAY_FD)
		_exit(relay_run(plan->channel, child));
	close_all_but(kept, 4);
	if (trusted_program(program, NULL) == 0)
		execve(program, argv, relay_environment(spank));
	_exit(relay_run(RELAY_FD, child));
}

static pid_t start_job(spank_t spank, struct plan *plan, const sigset_t *mask, pid_t *inner)
{
	int report[2];
	pid_t child;

	if (pipe2(report, O_CLOEXEC) != 0)
		_exit(1);
	child = fork_patiently();
	if (child == 0) {
		close(report[0]);
		be_the_job(spank, plan, report[1], mask);
		return 0;
	}
	close(report[1]);
	/* Nothing runs yet, and in these namespaces nothing could: as when Slurm can't fork. */
	if (child < 0)
		_exit(1);
	*inner = read_pid(report[0]);
	close(report[0]);
	return child;
}

void take_over(spank_t spank, const struct arguments *arguments, struct plan *plan)
{
	int64_t restarts = restart_count(spank, plan);
	pid_t child = 0, inner = 0;
	sigset_t all, before;

	/* A job in its first run can have no image: what lies in the store under its id is
	 * that of an older job. Nobody but a job's own agent could have said so before. */
	if (plan->guessed && restarts == 0) {
		plan->mode = MODE_FRESH;
		if (plan->parked) {
			close(plan->channel);
			return;
		}
	}
	/* The relay keeps them for restored sessions. */
	open_again(plan->descriptors, STDIN_FILENO, STDERR_FILENO);
	close(plan->descriptors);
	/* Signals that come from now on wait for the relay's loop, also across its exec. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	if (plan->mode == MODE_FRESH) {
		child = start_job(spank, plan, &before, &inner);
		if (child == 0)
			return;
	}
	introduce(plan, restarts, child, inner);
	become_relay(spank, arguments, plan, child);
}
