/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over a stream socket, every wait bounded. Times are CLOCK_MONOTONIC milliseconds. */
#ifndef RECLAIM_STREAM_H
#define RECLAIM_STREAM_H

#include <stdint.h>

#include "fault.h"
#include "message.h"

struct stream {
	int fd; /* -1: closed */
	size_t used;
	char buffer[MESSAGE_BYTES];
};

int64_t now_ms(void);

void stream_open(struct stream *stream, int fd);
void stream_close(struct stream *stream);

/* 0, or -1 with errno set (ETIMEDOUT once the deadline has passed). Never raises SIGPIPE. */
int stream_send(struct stream *stream, const struct message *message, int64_t deadline);

/* 1: a message; 0: none complete yet; -1: what is in the buffer is not our protocol. */
int stream_take(struct stream *stream, struct message *message);

/* One read without waiting: 1 something came, 0 nothing there, -1 end or error. */
int stream_fill(struct stream *stream);

/* Waits for one message. 0, or -1 with errno (ETIMEDOUT, EPROTO, ECONNRESET at the end). */
int stream_receive(struct stream *stream, struct message *message, int64_t deadline);

/* Connects to a Unix socket whose other end must be root. A file descriptor or -1. */
int connect_to_root(const char *path, struct fault *fault);

#endif
