/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "../base/cgroup.h"
#include "init.h"
#include "log.h"

#define TICK_MS 1000

/* The relay, when it still was slurmstepd's code and the user could not yet touch it. */
static void take_introduction(struct session *session, const struct message *message)
{
	struct fault fault = {""};
	const char *mode = message_get(message, "mode");
	int64_t child = 0, inner = 0;

	message_number(message, "restarts", 0, INT32_MAX, &session->tree.restarts);
	message_number(message, "child", 0, INT32_MAX, &child);
	message_number(message, "inner", 0, INT32_MAX, &inner);
	session->tree.child = (pid_t)child;
	session->tree.inner = (pid_t)inner;
	session->settings.fresh = mode != NULL && strcmp(mode, "fresh") == 0;
	session->introduced = 1;
	/* We were forked before Slurm had put the task into its cgroups. */
	if (cgroups_join(session->settings.outer_proc, session->settings.relay, &fault) != 0)
		log_note(session->settings.job, "%s", fault.text);
}

static void take(struct session *session, const struct message *message)
{
	const char *op = message_get(message, "op");
	const char *scope = message_get(message, "scope");
	int64_t number;

	if (op == NULL)
		return;
	if (strcmp(op, "relay") == 0 && !session->introduced)
		take_introduction(session, message);
	else if (strcmp(op, "exit") == 0 && session->tree.root == 0 && !session->tree.ended &&
		 message_number(message, "status", 0, 0xffff, &number) == 0)
		tree_exited(session, (int)number);
	else if (strcmp(op, "signal") == 0 &&
		 message_number(message, "sig", 1, SIGNALS - 1, &number) == 0)
		tree_signal(session, (int)number, scope != NULL && strcmp(scope, "group") == 0);
}

static void read_relay(struct session *session)
{
	static struct message message;

	/* Without a relay Slurm has nothing to wait for: our end takes the session with it. */
	if (stream_fill(&session->relay) < 0)
		_exit(0);
	while (stream_take(&session->relay, &message) > 0)
		take(session, &message);
}

void serve(struct session *session)
{
	session->link.state = LINK_AWAY;
	session->link.away_since = now_ms();
	session->link.stream.fd = -1;
	for (;;) {
		struct pollfd entries[] = {
			{.fd = session->hearing.fd, .events = POLLIN},
			{.fd = session->relay.fd, .events = POLLIN},
			{.fd = session->link.stream.fd, .events = POLLIN},
		};

		if (poll(entries, 3, TICK_MS) < 0 && errno != EINTR)
			_exit(1);
		hearing_drain(&session->hearing);
		tree_reap(session);
		if (entries[1].revents != 0)
			read_relay(session);
		if (session->link.stream.fd >= 0 && entries[2].revents != 0)
			link_read(session);
		if (!session->introduced)
			continue;
		follow_stops(session);
		link_poll(session);
		wait_for_restore(session);
	}
}
