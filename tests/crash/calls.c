/* SPDX-License-Identifier: Apache-2.0
 * The calls that count: what changes a disk, speaks to somebody, or becomes another program. */
#define _GNU_SOURCE
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The function of this name behind ours. */
#define NEXT(name) ((__typeof__(&name))next(#name))

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static int ignored(const char *path)
{
	return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0 ||
	       strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/var/log/", 9) == 0 ||
	       strstr(path, "__pycache__") != NULL;
}

/* Who is at the other end: munged is taken away as a whole (world.py), the lab only
 * plays systemd, and what has no name is a program's way to wake its own threads. */
static int kind_of_address(const struct sockaddr *address, socklen_t length, char *place, size_t size)
{
	const char *name = ((const struct sockaddr_un *)address)->sun_path;

	if (address->sa_family == AF_INET || address->sa_family == AF_INET6)
		return KIND_REMOTE;
	if (address->sa_family != AF_UNIX || length <= sizeof(sa_family_t) ||
	    strncmp(name, "/run/munge", 10) == 0 || strncmp(name, "/var/run/munge", 14) == 0 ||
	    strncmp(name, "/run/lab", 8) == 0)
		return 0;
	snprintf(place, size, "%.100s", name[0] != '\0' ? name : name + 1);
	return KIND_LOCAL;
}

static int kind_of_socket(int fd, char *place, size_t size)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	int kind = 0;

	if (getpeername(fd, (struct sockaddr *)&address, &length) == 0)
		kind = kind_of_address((struct sockaddr *)&address, length, place, size);
	length = sizeof(address);
	if (kind == 0 && place[0] == '\0' &&
	    getsockname(fd, (struct sockaddr *)&address, &length) == 0)
		kind = kind_of_address((struct sockaddr *)&address, length, place, size);
	return kind;
}

/* What a descriptor is: its kind, or 0 where it is none of ours; its name in `place`. */
static int kind_of(int fd, char *place, size_t size)
{
	char link[64];
	struct stat facts;
	ssize_t got;
	int error = errno, kind = 0;

	place[0] = '\0';
	if (fstat(fd, &facts) != 0) {
		errno = error;
		return 0;
	}
	if (S_ISSOCK(facts.st_mode)) {
		kind = kind_of_socket(fd, place, size);
	} else if (S_ISFIFO(facts.st_mode)) {
		snprintf(place, size, "a pipe");
		kind = KIND_PIPE;
	} else if (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		got = readlink(link, place, size - 1);
		place[got > 0 ? got : 0] = '\0';
		kind = ignored(place) ? 0 : KIND_FILE;
	}
	errno = error;
	return kind;
}

#define ON_DESCRIPTOR(type, name, wanted, fd, call)                                                \
	char what[PATH_MAX];                                                                       \
	int lost = 0, kind = kind_of(fd, what, sizeof(what)) & (wanted);                           \
	if (kind != 0 && faults_before(kind, #name, what, &lost) != 0)                             \
		return -1;                                                                         \
	return (type)faults_after((long)(call), lost);

#define ON_PATH(name, path, call)                                                                  \
	int lost = 0;                                                                              \
	if (!ignored(path) && faults_before(KIND_FILE, #name, path, &lost) != 0)                   \
		return -1;                                                                         \
	return (int)faults_after((call), lost);

#define ANY (KIND_FILE | KIND_REMOTE | KIND_LOCAL | KIND_PIPE)
#define SPOKEN (KIND_REMOTE | KIND_LOCAL)

EXPORT ssize_t write(int fd, const void *data, size_t size)
{
	ON_DESCRIPTOR(ssize_t, write, ANY, fd, NEXT(write)(fd, data, size))
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	ON_DESCRIPTOR(ssize_t, writev, ANY, fd, NEXT(writev)(fd, parts, count))
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	ON_DESCRIPTOR(ssize_t, pwrite, KIND_FILE, fd, NEXT(pwrite)(fd, data, size, at))
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
	ON_DESCRIPTOR(ssize_t, pwrite64, KIND_FILE, fd, NEXT(pwrite64)(fd, data, size, at))
}

EXPORT ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned f)
{
	ON_DESCRIPTOR(ssize_t, copy_file_range, KIND_FILE, out,
		      NEXT(copy_file_range)(in, from, out, to, size, f))
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *from, size_t size)
{
	ON_DESCRIPTOR(ssize_t, sendfile64, ANY, out, NEXT(sendfile64)(out, in, from, size))
}

EXPORT ssize_t splice(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags)
{
	ON_DESCRIPTOR(ssize_t, splice, KIND_FILE | KIND_PIPE, out, NEXT(splice)(in, from, out, to, size, flags))
}

EXPORT int fsync(int fd)
{
	ON_DESCRIPTOR(int, fsync, KIND_FILE, fd, NEXT(fsync)(fd))
}

EXPORT int fdatasync(int fd)
{
	ON_DESCRIPTOR(int, fdatasync, KIND_FILE, fd, NEXT(fdatasync)(fd))
}

EXPORT int ftruncate64(int fd, off64_t size)
{
	ON_DESCRIPTOR(int, ftruncate64, KIND_FILE, fd, NEXT(ftruncate64)(fd, size))
}

EXPORT int fchown(int fd, uid_t uid, gid_t gid)
{
	ON_DESCRIPTOR(int, fchown, KIND_FILE, fd, NEXT(fchown)(fd, uid, gid))
}

EXPORT int chown(const char *path, uid_t uid, gid_t gid)
{
	ON_PATH(chown, path, NEXT(chown)(path, uid, gid))
}

EXPORT int rename(const char *from, const char *to)
{
	ON_PATH(rename, to, NEXT(rename)(from, to))
}

EXPORT int renameat(int in, const char *from, int out, const char *to)
{
	ON_PATH(renameat, to, NEXT(renameat)(in, from, out, to))
}

EXPORT int link(const char *from, const char *to)
{
	ON_PATH(link, to, NEXT(link)(from, to))
}

EXPORT int unlink(const char *path)
{
	ON_PATH(unlink, path, NEXT(unlink)(path))
}

EXPORT int unlinkat(int in, const char *path, int flags)
{
	ON_PATH(unlinkat, path, NEXT(unlinkat)(in, path, flags))
}

EXPORT int rmdir(const char *path)
{
	ON_PATH(rmdir, path, NEXT(rmdir)(path))
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	ON_PATH(mkdir, path, NEXT(mkdir)(path, mode))
}

EXPORT int mkdirat(int in, const char *path, mode_t mode)
{
	ON_PATH(mkdirat, path, NEXT(mkdirat)(in, path, mode))
}

/* Only opens that may write: the others change nothing. */
#define WRITES(flags) (((flags) & (O_WRONLY | O_RDWR | O_CREAT)) != 0)

#define ON_OPEN(name, path, flags, call)                                                           \
	int lost = 0, fd;                                                                          \
	if (WRITES(flags) && !ignored(path) &&                                                     \
	    faults_before(KIND_FILE, #name, path, &lost) != 0)                                     \
		return -1;                                                                         \
	fd = (call);                                                                               \
	if (lost && fd >= 0)                                                                       \
		close(fd);                                                                         \
	return (int)faults_after(fd, lost);

static mode_t mode_of(int flags, va_list list)
{
	return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

#define MODE                                                                                       \
	va_list list;                                                                              \
	mode_t mode;                                                                               \
	va_start(list, flags);                                                                     \
	mode = mode_of(flags, list);                                                               \
	va_end(list);

EXPORT int open(const char *path, int flags, ...)
{
	MODE
	ON_OPEN(open, path, flags, NEXT(open)(path, flags, mode))
}

EXPORT int open64(const char *path, int flags, ...)
{
	MODE
	ON_OPEN(open64, path, flags, NEXT(open64)(path, flags, mode))
}

EXPORT int openat(int in, const char *path, int flags, ...)
{
	MODE
	ON_OPEN(openat, path, flags, NEXT(openat)(in, path, flags, mode))
}

EXPORT int openat64(int in, const char *path, int flags, ...)
{
	MODE
	ON_OPEN(openat64, path, flags, NEXT(openat64)(in, path, flags, mode))
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	char what[PATH_MAX] = "";
	int lost = 0, kind = kind_of_address(address, length, what, sizeof(what));

	if (kind != 0 && faults_before(kind, "connect", what, &lost) != 0)
		return -1;
	return (int)faults_after(NEXT(connect)(fd, address, length), lost);
}

EXPORT ssize_t send(int fd, const void *data, size_t size, int flags)
{
	ON_DESCRIPTOR(ssize_t, send, SPOKEN, fd, NEXT(send)(fd, data, size, flags))
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ON_DESCRIPTOR(ssize_t, sendmsg, SPOKEN, fd, NEXT(sendmsg)(fd, message, flags))
}

EXPORT ssize_t recv(int fd, void *data, size_t size, int flags)
{
	char what[PATH_MAX];
	int lost = 0;

	if (kind_of(fd, what, sizeof(what)) == KIND_REMOTE &&
	    faults_before(KIND_HEAR, "recv", what, &lost) != 0)
		return -1;
	return (ssize_t)faults_after(NEXT(recv)(fd, data, size, flags), lost);
}

EXPORT int execve(const char *path, char *const words[], char *const environment[])
{
	int lost = 0;

	if (faults_before(KIND_EXEC, "execve", path, &lost) != 0)
		return -1;
	return NEXT(execve)(path, words, environment);
}

EXPORT int execv(const char *path, char *const words[])
{
	int lost = 0;

	if (faults_before(KIND_EXEC, "execv", path, &lost) != 0)
		return -1;
	return NEXT(execv)(path, words);
}

EXPORT long ptrace(enum __ptrace_request request, ...)
{
	va_list list;
	pid_t pid;
	void *address, *data;
	int lost = 0;

	va_start(list, request);
	pid = va_arg(list, pid_t);
	address = va_arg(list, void *);
	data = va_arg(list, void *);
	va_end(list);
	if (faults_before(KIND_TRACE, "ptrace", "", &lost) != 0)
		return -1;
	return faults_after(((long (*)(int, pid_t, void *, void *))next("ptrace"))(
				    (int)request, pid, address, data), lost);
}
