/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "init.h"

static int follow(struct session *session, const struct message *order, const char *cmd,
		  struct fault *fault)
{
	int64_t number;

	if (strcmp(cmd, "hold") == 0 || strcmp(cmd, "unhold") == 0) {
		tree_hold(session, strcmp(cmd, "hold") == 0);
		return 0;
	}
	if (strcmp(cmd, "root") == 0) {
		if (message_number(order, "pid", 2, INT32_MAX, &number) != 0)
			return fault_set(fault, "pid is missing or no PID");
		return tree_root(session, (pid_t)number, fault);
	}
	if (strcmp(cmd, "end") == 0) {
		if (message_number(order, "status", 0, 0xffff, &number) != 0)
			return fault_set(fault, "status is missing or no wait status");
		end_relay(session, (int)number);
		return 0;
	}
	return fault_set(fault, "unknown command");
}

void obey(struct session *session, struct message *order)
{
	char cmd[32];
	struct fault fault = {""};
	const char *name = message_get(order, "cmd");
	int failed;

	cmd[0] = '\0';
	strncat(cmd, name, sizeof(cmd) - 1);
	failed = follow(session, order, cmd, &fault) != 0;
	message_clear(order);
	message_add(order, "cmd", cmd);
	message_add(order, "ok", failed ? "0" : "1");
	if (failed)
		message_add(order, "error", fault.text);
}
