/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/descriptors.h"
#include "../session/ending.h"
#include "exec.h"

void default_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The caller blocks all signals before it forks, so that none is lost between. */
void stand_in(pid_t child)
{
	const int standard_error = 2;
	sigset_t all;
	int status;

	/* Whoever waits for the end of a pipe waits for the command, not for us. */
	close_all_but(&standard_error, 1);
	sigfillset(&all);
	for (;;) {
		int number = sigwaitinfo(&all, NULL);

		if (number > 0 && number != SIGCHLD)
			kill(child, number);
		if (number == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
			end_like(status);
	}
}
