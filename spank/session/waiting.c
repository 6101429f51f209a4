/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose image nobody comes to restore is put back on hold, never started. */
#include <signal.h>

#include "../base/fallback.h"
#include "init.h"
#include "log.h"

#define AGAIN_MS 30000

/* Only a session that was made for a restore and has seen none yet: later the tree is the
 * session, and holding the job would kill it. */
static int nobody_comes(const struct session *session)
{
	return session->introduced && !session->settings.fresh && session->tree.root == 0 &&
	       session->link.state != LINK_ATTACHED;
}

void wait_for_restore(struct session *session)
{
	struct fallback fallback;
	struct fault fault = {""};
	int64_t now = now_ms();

	if (!nobody_comes(session) || now < session->requeue_at || session->scontrol > 0)
		return;
	if (fallback_read(&fallback, session->settings.state, &fault) != 0)
		log_note(session->settings.job, "%s", fault.text);
	if (now - session->link.away_since < fallback.restore_wait_ms)
		return;
	session->requeue_at = now + AGAIN_MS;
	session->scontrol = requeue_hold(&fallback, session->settings.name, &fault);
	log_note(session->settings.job, "no agent restored it; holding it again%s%s",
		 session->scontrol < 0 ? ": " : "",
		 session->scontrol < 0 ? fault.text : "");
}
