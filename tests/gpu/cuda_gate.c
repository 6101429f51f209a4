/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, tables = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int closed, inside;

/* By the clock that CRIU carries over, not the one that jumps. */
static void make_condition(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

int gate_enter(const char *call, int held)
{
	struct script *script;
	int code = CUDA_ERROR_UNKNOWN, card = -1;

	if (!process_begun())
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_once(&once, make_condition);
	pthread_mutex_lock(&lock);
	while (closed)
		pthread_cond_wait(&changed, &lock);
	inside++;
	pthread_mutex_unlock(&lock);
	script = process_script();
	if (script != NULL) {
		card = held < 0 ? -1 : process_number(script, held);
		code = script_fault(script, call, card);
		if (held >= 0 && (card < 0 || script->card[card].lost))
			code = CUDA_ERROR_UNKNOWN;
	}
	free(script);
	if (code != CUDA_SUCCESS)
		gate_leave();
	return code;
}

void gate_leave(void)
{
	pthread_mutex_lock(&lock);
	inside--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

int gate_close(unsigned timeout_ms)
{
	struct timespec until;
	int waited = 0, code;

	pthread_once(&once, make_condition);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	pthread_mutex_lock(&lock);
	closed = 1;
	while (inside > 0 && waited != ETIMEDOUT)
		waited = timeout_ms > 0 ? pthread_cond_timedwait(&changed, &lock, &until)
					: pthread_cond_wait(&changed, &lock);
	code = inside > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	if (code != CUDA_SUCCESS) {
		closed = 0;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

void gate_open(void)
{
	pthread_mutex_lock(&lock);
	closed = 0;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void tables_lock(void)
{
	pthread_mutex_lock(&tables);
}

void tables_unlock(void)
{
	pthread_mutex_unlock(&tables);
}
