/* SPDX-License-Identifier: Apache-2.0 */
#include "relay.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/stream.h"
#include "ending.h"
#include "witness.h"

/* Time for the sender to get through its list before the witnesses are asked. */
#define SETTLE_MS 20
#define SEND_MS 5000

struct relay {
	struct stream channel; /* to reclaim-init */
	pid_t child, witness;
	int witness_fd;
	int child_ended;
	int child_status;
};

static struct relay relay;
static struct message message;

/* reclaim-init is gone, and with it every process of the session: killed, unless the job had
 * ended before. */
static void end_without_init(void)
{
	if (relay.child <= 0)
		_exit(1);
	if (!relay.child_ended) {
		kill(relay.child, SIGKILL);
		while (waitpid(relay.child, &relay.child_status, 0) < 0 && errno == EINTR)
			;
	}
	end_like(relay.child_status);
}

static void tell(const char *op)
{
	message_add(&message, "op", op);
	if (stream_send(&relay.channel, &message, now_ms() + SEND_MS) != 0)
		end_without_init();
	message_clear(&message);
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == relay.witness) {
			close(relay.witness_fd);
			relay.witness_fd = -1;
		}
		if (pid != relay.child)
			continue;
		relay.child_ended = 1;
		relay.child_status = status;
		if (relay.channel.fd < 0)
			continue;
		message_addf(&message, "status", "%d", status);
		tell("exit");
	}
}

/* reclaim-init is root and knows who the job's root is now, so it does the signalling. */
static void pass_on(int number)
{
	int group;

	if (relay.channel.fd < 0) {
		/* Parked without anybody to ask. */
		if (number == SIGTERM)
			end_like(SIGTERM);
		return;
	}
	poll(NULL, 0, SETTLE_MS);
	group = witness_heard(relay.witness_fd, number);
	message_addf(&message, "sig", "%d", number);
	message_add(&message, "scope", group ? "group" : "process");
	tell("signal");
}

static void take_signals(int fd)
{
	struct signalfd_siginfo info;

	while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap();
		else
			pass_on((int)info.ssi_signo);
	}
}

static void take_orders(void)
{
	int64_t status;

	if (stream_fill(&relay.channel) < 0) {
		/* What it said last may still be in the buffer. */
		close(relay.channel.fd);
		relay.channel.fd = -1;
	}
	while (stream_take(&relay.channel, &message) > 0) {
		const char *cmd = message_get(&message, "cmd");

		if (cmd != NULL && strcmp(cmd, "end") == 0 &&
		    message_number(&message, "status", 0, 0xffff, &status) == 0)
			end_like((int)status);
	}
	message_clear(&message);
	if (relay.channel.fd < 0) {
		reap();
		end_without_init();
	}
}

int relay_run(int channel, pid_t child)
{
	static struct hearing hearing;

	/*
	 * The user must not be able to steer it with a debugger: it speaks to root. The installed
	 * program can't be read by others, so this holds from its exec on already; see would_dump()
	 * in Linux' fs/exec.c.
	 */
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "reclaim-relay");
	stream_open(&relay.channel, channel);
	message_clear(&message);
	relay.child = child;
	relay.witness_fd = -1;
	if (chdir("/") != 0 || hearing_open(&hearing) != 0)
		return 1;
	relay.witness = witness_start(&relay.witness_fd);
	reap();
	for (;;) {
		struct pollfd entries[] = {
			{.fd = hearing.fd, .events = POLLIN},
			{.fd = relay.channel.fd, .events = POLLIN},
		};

		if (poll(entries, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (entries[0].revents != 0)
			take_signals(hearing.fd);
		if (relay.channel.fd >= 0 && entries[1].revents != 0)
			take_orders();
	}
}
