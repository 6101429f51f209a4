/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void stream_open(struct stream *stream, int fd)
{
	stream->fd = fd;
	stream->used = 0;
}

void stream_close(struct stream *stream)
{
	if (stream->fd >= 0)
		close(stream->fd);
	stream_open(stream, -1);
}

/* 0 once the descriptor is ready or broken (the next call then says so), -1 in time-out. */
static int wait_for(int fd, short events, int64_t deadline)
{
	for (;;) {
		struct pollfd entry = {.fd = fd, .events = events};
		int64_t left = deadline - now_ms();
		int ready;

		if (left < 0)
			left = 0;
		ready = poll(&entry, 1, left > 3600000 ? 3600000 : (int)left);
		if (ready > 0)
			return 0;
		if (ready < 0 && errno != EINTR)
			return -1;
		if (now_ms() >= deadline) {
			errno = ETIMEDOUT;
			return -1;
		}
	}
}

int stream_send(struct stream *stream, const struct message *message, int64_t deadline)
{
	char buffer[MESSAGE_BYTES];
	long length = message_encode(message, buffer, sizeof(buffer));
	long sent = 0;

	if (length < 0) {
		errno = EMSGSIZE;
		return -1;
	}
	while (sent < length) {
		ssize_t n = send(stream->fd, buffer + sent, (size_t)(length - sent),
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			sent += n;
		else if (n < 0 && errno == EAGAIN) {
			if (wait_for(stream->fd, POLLOUT, deadline) != 0)
				return -1;
		} else if (n == 0 || errno != EINTR)
			return -1;
	}
	return 0;
}

int stream_take(struct stream *stream, struct message *message)
{
	long taken = message_decode(message, stream->buffer, stream->used);

	if (taken <= 0)
		return (int)taken;
	stream->used -= (size_t)taken;
	memmove(stream->buffer, stream->buffer + taken, stream->used);
	return 1;
}

int stream_fill(struct stream *stream)
{
	ssize_t n = recv(stream->fd, stream->buffer + stream->used,
			 sizeof(stream->buffer) - stream->used, MSG_DONTWAIT);

	if (n > 0) {
		stream->used += (size_t)n;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n == 0)
		errno = ECONNRESET;
	return -1;
}

int stream_receive(struct stream *stream, struct message *message, int64_t deadline)
{
	for (;;) {
		int got = stream_take(stream, message);

		if (got > 0)
			return 0;
		if (got < 0) {
			errno = EPROTO;
			return -1;
		}
		if (wait_for(stream->fd, POLLIN, deadline) != 0 || stream_fill(stream) < 0)
			return -1;
	}
}

int connect_to_root(const char *path, struct fault *fault)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return fault_set(fault, "socket path too long: %s", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fault_set(fault, "couldn't make a socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		fault_set(fault, "couldn't reach the agent at %s: %s", path, strerror(errno));
	else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		fault_set(fault, "couldn't tell who listens at %s: %s", path, strerror(errno));
	else if (peer.uid != 0)
		fault_set(fault, "%s is held by uid %u, not root", path, (unsigned)peer.uid);
	else
		return fd;
	close(fd);
	return -1;
}
