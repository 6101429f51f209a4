/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

void log_note(uint32_t job, const char *format, ...)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
	char text[768];
	int length = snprintf(text, sizeof(text), "<%d>reclaim-init: job %u: ",
			      LOG_DAEMON | LOG_NOTICE, job);
	va_list args;
	int fd;

	va_start(args, format);
	vsnprintf(text + length, sizeof(text) - (size_t)length, format, args);
	va_end(args);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof(address));
	close(fd);
}
