/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the agent, made anew every second while it is gone. */
#include <errno.h>
#include <string.h>

#include "init.h"
#include "log.h"

#define RETRY_MS 1000
#define GREETING_MS 10000
#define SEND_MS 1000

static void hang_up(struct session *session)
{
	struct link *link = &session->link;

	if (link->state == LINK_ATTACHED) {
		link->away_since = now_ms();
		log_note(session->settings.job, "the agent is gone");
	}
	stream_close(&link->stream);
	link->state = LINK_AWAY;
	link->retry_at = now_ms() + RETRY_MS;
}

static void send_message(struct session *session, struct message *message)
{
	if (stream_send(&session->link.stream, message, now_ms() + SEND_MS) != 0)
		hang_up(session);
}

static void greet(struct session *session)
{
	static struct message hello;
	const struct settings *settings = &session->settings;
	const struct tree *tree = &session->tree;
	struct link *link = &session->link;

	stream_open(&link->stream, connect_to_root(settings->socket, NULL));
	if (link->stream.fd < 0) {
		link->retry_at = now_ms() + RETRY_MS;
		return;
	}
	link->state = LINK_GREETING;
	link->retry_at = now_ms() + GREETING_MS;
	message_clear(&hello);
	message_add(&hello, "op", "attach");
	message_add(&hello, "protocol", "1");
	message_addf(&hello, "job", "%u", settings->job);
	message_addf(&hello, "uid", "%u", (unsigned)settings->uid);
	message_addf(&hello, "restarts", "%lld", (long long)tree->restarts);
	message_add(&hello, "mode", settings->fresh ? "fresh" : "restore");
	message_addf(&hello, "relay", "%d", (int)settings->relay);
	message_addf(&hello, "child", "%d", (int)tree->child);
	message_addf(&hello, "held", "%d", tree->held);
	message_addf(&hello, "root", "%d", (int)tree->root);
	tell_gpus(&hello);
	send_message(session, &hello);
}

void link_poll(struct session *session)
{
	if (session->link.state == LINK_ATTACHED || now_ms() < session->link.retry_at)
		return;
	if (session->link.state == LINK_GREETING)
		hang_up(session);
	else
		greet(session);
}

void link_event(struct session *session, struct message *event)
{
	if (session->link.state == LINK_ATTACHED)
		send_message(session, event);
}

static void attached(struct session *session)
{
	static struct message event;

	session->link.state = LINK_ATTACHED;
	/* An agent that was away when the tree ended must hear of it. */
	if (!session->tree.ended)
		return;
	message_clear(&event);
	message_add(&event, "event", "exit");
	message_addf(&event, "status", "%d", session->tree.status);
	send_message(session, &event);
}

static void take(struct session *session, struct message *message)
{
	const char *ok = message_get(message, "ok");

	if (session->link.state == LINK_ATTACHED) {
		if (message_get(message, "cmd") == NULL)
			return;
		obey(session, message);
		send_message(session, message);
	} else if (ok != NULL && strcmp(ok, "1") == 0)
		attached(session);
	else
		hang_up(session);
}

void link_read(struct session *session)
{
	static struct message message;
	struct link *link = &session->link;
	int got = 0;

	if (stream_fill(&link->stream) < 0) {
		hang_up(session);
		return;
	}
	while (link->stream.fd >= 0 && (got = stream_take(&link->stream, &message)) > 0)
		take(session, &message);
	if (link->stream.fd >= 0 && got < 0) {
		log_note(session->settings.job, "the agent sent something unreadable");
		hang_up(session);
	}
}
