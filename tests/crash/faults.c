/* SPDX-License-Identifier: Apache-2.0
 * The n-th call of a program that is started with LD_PRELOAD and FAULTS=<mapped file> does not
 * happen: counted in all its threads and children together, which strace's injection can't do, and
 * without ptrace, which CRIU needs for itself. */
#define _GNU_SOURCE
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("FAULTS");
	int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *place;

	if (fd < 0)
		return;
	place = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (place != MAP_FAILED)
		control = place;
}

/* Not snprintf: this may run between fork and exec, and in signal handlers. */
static void note(char *record, enum kind kind, const char *name, const char *what)
{
	size_t used = strnlen(name, RECORD_LENGTH / 2), more = strnlen(what, 4096);

	record[0] = (char)('A' + __builtin_ctz(kind));
	memcpy(record + 1, name, used++);
	record[used++] = ' ';
	/* Of a long path the end says more. */
	if (more > RECORD_LENGTH - 1 - used) {
		what += more - (RECORD_LENGTH - 1 - used);
		more = RECORD_LENGTH - 1 - used;
	}
	memcpy(record + used, what, more);
	record[used + more] = '\0';
}

static void hit(enum kind kind)
{
	pid_t victim = kind == KIND_EXEC ? getppid() : getpid();

	control->pid = victim;
	__atomic_fetch_add(&control->hits, 1, __ATOMIC_SEQ_CST);
	if (control->action == ACT_KILL)
		kill(victim, SIGKILL);
	else if (control->action == ACT_STOP)
		kill(victim, SIGSTOP);
}

int faults_before(enum kind kind, const char *name, const char *what, int *lost)
{
	uint32_t number;

	*lost = 0;
	if (control == NULL || !control->armed || !(control->kinds & kind))
		return 0;
	number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
	if (number <= RECORDS)
		note(control->records[number - 1], kind, name, what);
	if (control->action == ACT_COUNT || number < control->target ||
	    (control->length != 0 && number >= control->target + control->length))
		return 0;
	hit(kind);
	if (control->action == ACT_FAIL) {
		errno = (int)control->error;
		return -1;
	}
	*lost = control->action == ACT_LOSE;
	return 0;
}

long faults_after(long result, int lost)
{
	if (!lost || result < 0)
		return result;
	errno = (int)control->error;
	return -1;
}

int faults_skew(void)
{
	return control != NULL ? __atomic_load_n(&control->skew, __ATOMIC_RELAXED) : 0;
}
