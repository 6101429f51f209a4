/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worst case: the job has an image, and no session could be made for it. A root process
 * stays behind that puts the job back on hold, so that it doesn't run its script from the top.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/descriptors.h"
#include "../base/fallback.h"
#include "../base/stream.h"
#include "plugin.h"

#define FIRST_MS 3000
#define AGAIN_MS 30000

static void hold_again(const struct arguments *arguments, const char *job)
{
	struct fallback fallback;

	/* Without a readable plugin.conf the defaults are the best there is. */
	fallback_read(&fallback, arguments->state, NULL);
	requeue_hold(&fallback, job, NULL);
}

/* SIGTERM from Slurm, passed on by the relay, is what ends a parked job. */
static void answer(struct stream *stream, struct message *message)
{
	int64_t signal_number;

	while (stream_take(stream, message) > 0) {
		if (message_number(message, "sig", 1, 64, &signal_number) != 0 ||
		    signal_number != SIGTERM)
			continue;
		message_clear(message);
		message_add(message, "cmd", "end");
		message_addf(message, "status", "%d", SIGTERM);
		stream_send(stream, message, now_ms() + 1000);
	}
}

static void keep_parked(const struct arguments *arguments, const char *job, int channel)
{
	static struct stream stream;
	static struct message message;
	int64_t next = now_ms() + FIRST_MS;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "reclaim-park");
	close_all_but(&channel, 1);
	stream_open(&stream, channel);
	for (;;) {
		struct pollfd entry = {.fd = channel, .events = POLLIN};
		int64_t left = next - now_ms();

		if (left <= 0) {
			hold_again(arguments, job);
			next = now_ms() + AGAIN_MS;
			continue;
		}
		if (poll(&entry, 1, (int)left) > 0) {
			if (stream_fill(&stream) < 0)
				_exit(0);
			answer(&stream, &message);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

int park(const struct arguments *arguments, struct plan *plan, struct fault *fault)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return fault_set(fault, "couldn't make a socket pair: %s", strerror(errno));
	pair[0] = move_up(pair[0]);
	pair[1] = move_up(pair[1]);
	if (pair[0] < 0 || pair[1] < 0)
		return fault_set(fault, "out of file descriptors");
	plan->init = fork();
	if (plan->init == 0)
		keep_parked(arguments, plan->name, pair[1]);
	close(pair[1]);
	if (plan->init < 0) {
		close(pair[0]);
		return fault_set(fault, "couldn't fork: %s", strerror(errno));
	}
	plan->channel = pair[0];
	plan->parked = 1;
	return 0;
}
