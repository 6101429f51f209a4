/* SPDX-License-Identifier: Apache-2.0 */
#include "witness.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../base/descriptors.h"
#include "../base/stream.h"

#define ANSWER_MS 2000

int hearing_open(struct hearing *hearing)
{
	struct sigaction action;
	sigset_t all;

	memset(hearing, 0, sizeof(*hearing));
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) != 0)
		return -1;
	/* An ignored signal is dropped even while it is blocked, and one may inherit that. The
	 * others are left alone: setting SIG_DFL, too, drops what is pending of SIGCONT, SIGWINCH
	 * and their like. */
	for (int number = 1; number < SIGNALS; number++)
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
			signal(number, SIG_DFL);
	hearing->fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	return hearing->fd < 0 ? -1 : 0;
}

int hearing_drain(struct hearing *hearing)
{
	struct signalfd_siginfo info;
	int child = 0;

	while (read(hearing->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			child = 1;
		else if (info.ssi_signo < SIGNALS)
			hearing->last[info.ssi_signo] = now_ms();
	}
	return child;
}

int heard_lately(const struct hearing *hearing, int number)
{
	int64_t last = hearing->last[number];

	return last != 0 && now_ms() - last <= SAME_SIGNAL_MS;
}

/* The question is a signal number, the answer one byte. Draining comes before answering, so
 * that the answer is right however late this process gets to run. */
static void witness_loop(int fd)
{
	static struct hearing hearing;

	if (hearing_open(&hearing) != 0)
		_exit(1);
	for (;;) {
		struct pollfd entries[] = {
			{.fd = fd, .events = POLLIN},
			{.fd = hearing.fd, .events = POLLIN},
		};
		unsigned char number, answer;

		if (poll(entries, 2, -1) < 0 && errno != EINTR)
			_exit(1);
		hearing_drain(&hearing);
		if (entries[0].revents == 0)
			continue;
		if (recv(fd, &number, 1, 0) != 1)
			_exit(0);
		answer = number < SIGNALS && heard_lately(&hearing, number);
		hearing.last[number % SIGNALS] = 0;
		if (send(fd, &answer, 1, MSG_NOSIGNAL) != 1)
			_exit(0);
	}
}

pid_t witness_start(int *fd)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "reclaim-witness");
		close_all_but(&pair[1], 1);
		witness_loop(pair[1]);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -1;
	}
	*fd = pair[0];
	return pid;
}

int witness_heard(int fd, int number)
{
	unsigned char byte = (unsigned char)number;
	struct pollfd entry = {.fd = fd, .events = POLLIN};

	if (fd < 0 || send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
		return 0;
	if (poll(&entry, 1, ANSWER_MS) != 1 || recv(fd, &byte, 1, MSG_DONTWAIT) != 1)
		return 0;
	return byte;
}
