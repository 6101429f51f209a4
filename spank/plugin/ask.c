/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/stream.h"
#include "plugin.h"

static int take_mode(const struct message *answer, struct plan *plan)
{
	const char *mode = message_get(answer, "mode");

	if (mode == NULL)
		return -1;
	if (strcmp(mode, "ignore") == 0)
		plan->mode = MODE_IGNORE;
	else if (strcmp(mode, "fresh") == 0)
		plan->mode = MODE_FRESH;
	else if (strcmp(mode, "restore") == 0)
		plan->mode = MODE_RESTORE;
	else
		return -1;
	return 0;
}

static int take_answer(const struct message *answer, struct plan *plan, struct fault *fault)
{
	const char *tmp = message_get(answer, "private_tmp");
	int64_t number;

	if (take_mode(answer, plan) != 0)
		return fault_set(fault, "the agent's answer names no mode");
	if (plan->mode == MODE_IGNORE)
		return 0;
	if (tmp != NULL && tmp[0] != '\0') {
		if (!plain_path(tmp))
			return fault_set(fault, "the agent's private_tmp is not a plain path");
		snprintf(plan->private_tmp, sizeof(plan->private_tmp), "%s", tmp);
	}
	if (message_get(answer, "block_io_uring") != NULL) {
		if (message_number(answer, "block_io_uring", 0, 1, &number) != 0)
			return fault_set(fault, "the agent's block_io_uring is not 0 or 1");
		plan->block_io_uring = (int)number;
	}
	if (message_get(answer, "last_pid") != NULL &&
	    message_number(answer, "last_pid", 1, 4194303, &plan->last_pid) != 0)
		return fault_set(fault, "the agent's last_pid is not a PID");
	return 0;
}

int ask_agent(const struct arguments *arguments, const struct message *facts, struct plan *plan,
	      struct fault *fault)
{
	int64_t deadline = now_ms() + arguments->timeout_ms;
	struct stream *stream = malloc(sizeof(*stream));
	struct message *answer = malloc(sizeof(*answer));
	int rv = -1;

	if (stream == NULL || answer == NULL) {
		fault_set(fault, "out of memory");
		goto done;
	}
	stream_open(stream, connect_to_root(arguments->socket, fault));
	if (stream->fd < 0)
		goto done;
	if (stream_send(stream, facts, deadline) != 0)
		fault_set(fault, "couldn't ask the agent: %s", strerror(errno));
	else if (stream_receive(stream, answer, deadline) != 0)
		fault_set(fault, "no answer from the agent: %s", strerror(errno));
	else
		rv = take_answer(answer, plan, fault);
	stream_close(stream);
done:
	free(stream);
	free(answer);
	return rv;
}
