/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session's namespaces. They are made by cloning reclaim-init into them; this process joins
 * only once reclaim-init has said that all is ready. Until then nothing has changed for the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/descriptors.h"
#include "../base/filter.h"
#include "../base/stream.h"
#include "plugin.h"

#define READY_MS 10000
#define INIT_FD 3

static void exec_init(const struct arguments *arguments, const struct plan *plan, int channel,
		      pid_t relay)
{
	char program[PATH_LONGEST + 32], job[16], uid[16], last[16], pid[16];
	char *argv[] = {"reclaim-init", "--job", job, "--name", (char *)plan->name,
			"--uid", uid, "--relay", pid,
			"--last-pid", last, "--mode",
			plan->mode == MODE_FRESH ? "fresh" : "restore",
			"--socket", (char *)arguments->socket, "--state",
			(char *)arguments->state, "--private-tmp", (char *)plan->private_tmp, NULL};
	char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", NULL};
	const int kept[] = {0, 1, 2, INIT_FD};

	snprintf(program, sizeof(program), "%s/reclaim-init", arguments->libexec);
	snprintf(job, sizeof(job), "%u", plan->job);
	snprintf(uid, sizeof(uid), "%u", (unsigned)plan->uid);
	snprintf(pid, sizeof(pid), "%d", (int)relay);
	snprintf(last, sizeof(last), "%lld", (long long)plan->last_pid);
	/* The channel was moved up, so it can't be one of the descriptors replaced here. */
	if (dup2(channel, INIT_FD) == INIT_FD && null_on(0, 2) == 0) {
		close_all_but(kept, 4);
		execve(program, argv, environment);
	}
	_exit(127);
}

static int wait_ready(int channel, struct fault *fault)
{
	struct stream *stream = malloc(sizeof(*stream));
	struct message *answer = malloc(sizeof(*answer));
	const char *error;
	int rv = -1;

	if (stream == NULL || answer == NULL) {
		fault_set(fault, "out of memory");
		goto done;
	}
	stream_open(stream, channel);
	if (stream_receive(stream, answer, now_ms() + READY_MS) != 0) {
		fault_set(fault, "reclaim-init did not get ready: %s", strerror(errno));
		goto done;
	}
	error = message_get(answer, "error");
	if (error != NULL)
		fault_set(fault, "reclaim-init: %s", error);
	else if (message_get(answer, "ready") != NULL)
		rv = 0;
	else
		fault_set(fault, "reclaim-init said neither ready nor error");
done:
	free(stream);
	free(answer);
	return rv;
}

/* Everything that entering needs, opened before, so that it can be undone. */
struct doors {
	int pid, mount, root;
	int old_pid, old_mount, old_root;
	char *directory;
};

static int open_doors(struct doors *doors, pid_t init, struct fault *fault)
{
	static const char *const names[] = {"ns/pid", "ns/mnt", "root"};
	int *inner[] = {&doors->pid, &doors->mount, &doors->root};
	int *outer[] = {&doors->old_pid, &doors->old_mount, &doors->old_root};
	int rv = 0;

	doors->directory = getcwd(NULL, 0);
	for (int i = 0; i < 3; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)init, names[i]);
		*inner[i] = open(path, O_RDONLY | O_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/%s", names[i]);
		*outer[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (*inner[i] < 0 || *outer[i] < 0)
			rv = fault_set(fault, "couldn't open the session's namespaces: %s",
				       strerror(errno));
	}
	return rv;
}

static void close_doors(struct doors *doors)
{
	const int all[] = {doors->pid, doors->mount, doors->root,
			   doors->old_pid, doors->old_mount, doors->old_root};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i] >= 0)
			close(all[i]);
	free(doors->directory);
}

/* The PID namespace is that of future children only. Joining a mount namespace moves root and
 * working directory to its top: both are put back to where they were. */
static int step_in(int pid, int mount, int root, const char *directory, struct fault *fault)
{
	if (setns(pid, CLONE_NEWPID) != 0)
		return fault_set(fault, "couldn't join the PID namespace: %s", strerror(errno));
	if (setns(mount, CLONE_NEWNS) != 0)
		return fault_set(fault, "couldn't join the mount namespace: %s", strerror(errno));
	if (fchdir(root) != 0 || chroot(".") != 0 || chdir("/") != 0)
		return fault_set(fault, "couldn't enter the session's root: %s", strerror(errno));
	/* Slurm changes to the job's directory later; one that is gone is its business. */
	if (directory != NULL && chdir(directory) != 0)
		slurm_verbose("reclaim: couldn't go back to %s", directory);
	return 0;
}

static int enter(const struct plan *plan, struct fault *fault)
{
	struct doors doors;
	int rv = -1;

	if (open_doors(&doors, plan->init, fault) != 0)
		goto done;
	rv = step_in(doors.pid, doors.mount, doors.root, doors.directory, fault);
	if (rv == 0 && plan->block_io_uring)
		rv = block_io_uring(fault);
	if (rv != 0)
		step_in(doors.old_pid, doors.old_mount, doors.old_root, doors.directory, NULL);
done:
	close_doors(&doors);
	return rv;
}

/* A process that died of SIGKILL but hangs in the kernel must not hold up the job. */
static void reap(pid_t pid)
{
	kill(pid, SIGKILL);
	for (int i = 0; i < 1000 && waitpid(pid, NULL, WNOHANG) == 0; i++)
		usleep(2000);
}

int open_session(const struct arguments *arguments, struct plan *plan, struct fault *fault)
{
	char program[PATH_LONGEST + 32];
	pid_t relay = getpid();
	int pair[2];

	snprintf(program, sizeof(program), "%s/reclaim-init", arguments->libexec);
	if (trusted_program(program, fault) != 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return fault_set(fault, "couldn't make a socket pair: %s", strerror(errno));
	pair[0] = move_up(pair[0]);
	pair[1] = move_up(pair[1]);
	if (pair[0] < 0 || pair[1] < 0)
		return fault_set(fault, "out of file descriptors");
	/* Argument order of the bare call differs between architectures only where unused. */
	plan->init = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	if (plan->init == 0)
		exec_init(arguments, plan, pair[1], relay);
	close(pair[1]);
	plan->descriptors = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (plan->init < 0)
		fault_set(fault, "couldn't make the session's namespaces: %s", strerror(errno));
	else if (wait_ready(pair[0], fault) == 0 && enter(plan, fault) == 0) {
		plan->channel = pair[0];
		return 0;
	} else
		reap(plan->init);
	close(pair[0]);
	close(plan->descriptors);
	plan->descriptors = -1;
	plan->init = 0;
	return -1;
}
