/* SPDX-License-Identifier: Apache-2.0 */
/* The job's processes: whose exit counts, who gets the signals, and whether the job may end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"
#include "log.h"

void end_relay(struct session *session, int status)
{
	static struct message order;

	message_clear(&order);
	message_add(&order, "cmd", "end");
	message_addf(&order, "status", "%d", status);
	/* If the relay can't be told, losing us ends it. */
	if (stream_send(&session->relay, &order, now_ms() + 5000) != 0)
		_exit(1);
}

static pid_t current_root(const struct session *session)
{
	return session->tree.root != 0 ? session->tree.root : session->tree.inner;
}

int tree_waits(const struct session *session)
{
	return session->tree.ended || current_root(session) == 0;
}

void tree_exited(struct session *session, int status)
{
	static struct message event;

	session->tree.ended = 1;
	session->tree.status = status;
	message_clear(&event);
	message_add(&event, "event", "exit");
	message_addf(&event, "status", "%d", status);
	link_event(session, &event);
	if (!session->tree.held)
		end_relay(session, status);
}

static void held_again(struct session *session, int status)
{
	session->scontrol = 0;
	if (status != 0)
		log_note(session->settings.job, "scontrol couldn't hold it: wait status %d", status);
}

void tree_reap(struct session *session)
{
	struct tree *tree = &session->tree;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == session->scontrol)
			held_again(session, status);
		tree->reaped[tree->next].pid = pid;
		tree->reaped[tree->next].status = status;
		tree->next = (tree->next + 1) % REAPED;
		if (pid == tree->root && !tree->ended)
			tree_exited(session, status);
	}
}

void tree_signal(struct session *session, int number, int group)
{
	pid_t root = current_root(session);
	int everywhere;

	hearing_drain(&session->hearing);
	everywhere = heard_lately(&session->hearing, number);
	session->hearing.last[number] = 0;
	if (tree_waits(session)) {
		if (number == SIGTERM)
			end_relay(session, SIGTERM);
		return;
	}
	if (root < 2)
		return;
	/* Sent to every process of the step: then the tree has it already. */
	if (!everywhere)
		kill(group ? -root : root, number);
	stop_in_its_stead(number, everywhere || group ? 0 : root, everywhere ? 0 : root);
}

void tree_hold(struct session *session, int held)
{
	session->tree.held = held;
	if (!held && session->tree.ended)
		end_relay(session, session->tree.status);
}

static int is_our_child(pid_t pid)
{
	char path[32], text[512];
	const char *after;
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	/* The name may hold anything, even a parenthesis: only the last one ends it. */
	after = fgets(text, sizeof(text), file) == NULL ? NULL : strrchr(text, ')');
	fclose(file);
	return after != NULL && sscanf(after, ") %*c %d", &parent) == 1 && parent == 1;
}

int tree_root(struct session *session, pid_t pid, struct fault *fault)
{
	struct tree *tree = &session->tree;
	size_t i = 0;

	tree_reap(session);
	if (!is_our_child(pid)) {
		while (i < REAPED && tree->reaped[i].pid != pid)
			i++;
		if (i == REAPED)
			return fault_set(fault, "%d is no child of reclaim-init", (int)pid);
	}
	tree->root = pid;
	tree->held = 0;
	tree->ended = 0;
	/* It may have died between CRIU's end and this message. */
	if (!is_our_child(pid))
		tree_exited(session, tree->reaped[i].status);
	return 0;
}
