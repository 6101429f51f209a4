/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for slurmstepd: calls the plugin's hooks in the same order, as the same users, and
 * runs a program in between. Usage: stepd KEY=VALUE... -- PLUGIN-ARGUMENT... -- PROGRAM...
 * Keys: job, array (ID_TASK), uid, gid, restarts, cwd, cgroup (a file of process ids). Prints "task PID" once
 * the task is released and "status N" when it has ended. The spank environment is environ.
 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
int slurm_spank_init(spank_t spank, int argc, char **argv);
int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv);
int slurm_spank_task_init(spank_t spank, int argc, char **argv);

static struct spank_option option;
static const char *job = "1", *uid = "0", *gid = "0", *restarts, *cwd = "/", *cgroup, *chosen;
static const char *step, *array;

static void log_line(const char *level, const char *format, va_list args)
{
	fprintf(stderr, "%s: ", level);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

#define LOGGER(name)                                     \
	void name(const char *format, ...)               \
	{                                                \
		va_list args;                            \
		va_start(args, format);                  \
		log_line(#name + 6, format, args);       \
		va_end(args);                            \
	}
LOGGER(slurm_error)
LOGGER(slurm_info)
LOGGER(slurm_verbose)

spank_context_t spank_context(void)
{
	return S_CTX_REMOTE;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *registered)
{
	(void)spank;
	option = *registered;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list args;
	spank_err_t rv = ESPANK_SUCCESS;

	(void)spank;
	va_start(args, item);
	if (item == S_JOB_ID)
		*va_arg(args, uint32_t *) = (uint32_t)atol(job);
	else if (item == S_JOB_UID)
		*va_arg(args, uid_t *) = (uid_t)atol(uid);
	else if (item == S_JOB_GID)
		*va_arg(args, gid_t *) = (gid_t)atol(gid);
	else if (item == S_JOB_STEPID)
		*va_arg(args, uint32_t *) = step == NULL ? SLURM_BATCH_SCRIPT : (uint32_t)atol(step);
	else if (item == S_JOB_ARRAY_ID)
		*va_arg(args, uint32_t *) = array == NULL ? 0 : (uint32_t)atol(array);
	else if (item == S_JOB_ARRAY_TASK_ID)
		*va_arg(args, uint32_t *) =
			array == NULL ? NO_VAL : (uint32_t)atol(strchr(array, '_') + 1);
	else if (item == S_JOB_ENV)
		*va_arg(args, char ***) = environ;
	else
		rv = ESPANK_BAD_ARG;
	va_end(args);
	return rv;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *out, int size)
{
	const char *value = getenv(name);

	(void)spank;
	if (value == NULL)
		return ESPANK_ENV_NOEXIST;
	snprintf(out, (size_t)size, "%s", value);
	return strlen(value) < (size_t)size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int replace)
{
	(void)spank;
	return setenv(name, value, replace) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	(void)spank;
	return unsetenv(name) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

static void take(char *text)
{
	const struct {
		const char *name;
		const char **value;
	} keys[] = {{"job=", &job}, {"uid=", &uid}, {"gid=", &gid}, {"restarts=", &restarts},
		    {"cwd=", &cwd}, {"cgroup=", &cgroup}, {"option=", &chosen}, {"step=", &step},
		    {"array=", &array}};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strncmp(text, keys[i].name, strlen(keys[i].name)) == 0)
			*keys[i].value = text + strlen(keys[i].name);
}

static void task(int argc, char **argv, char **program, int released)
{
	char byte, pid[16];

	slurm_spank_task_init_privileged(NULL, argc, argv);
	if (setgroups(0, NULL) != 0 || setresgid((gid_t)atol(gid), (gid_t)atol(gid), 0) != 0 ||
	    setgid((gid_t)atol(gid)) != 0 || setuid((uid_t)atol(uid)) != 0 || chdir(cwd) != 0)
		_exit(99);
	if (read(released, &byte, 1) != 1)
		_exit(98);
	close(released);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("SLURM_TASK_PID", pid, 1);
	if (restarts != NULL && atoi(restarts) > 0)
		setenv("SLURM_RESTART_COUNT", restarts, 1);
	slurm_spank_task_init(NULL, argc, argv);
	execve(program[0], program, environ);
	_exit(97);
}

static void move_to_cgroup(pid_t pid)
{
	char text[16];
	int fd = cgroup == NULL ? -1 : open(cgroup, O_WRONLY);
	int length = snprintf(text, sizeof(text), "%d", (int)pid);

	if (fd >= 0 && write(fd, text, (size_t)length) != length)
		perror("cgroup");
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	char **plugin, **program;
	int count = 0, release[2], status;
	pid_t pid;

	(void)argc;
	while (*++argv != NULL && strcmp(*argv, "--") != 0)
		take(*argv);
	for (plugin = ++argv; *argv != NULL && strcmp(*argv, "--") != 0; argv++)
		count++;
	program = argv + 1;
	slurm_spank_init(NULL, count, plugin);
	if (chosen != NULL)
		option.cb(option.val, chosen, 1);
	if (pipe2(release, O_CLOEXEC) != 0)
		return 1;
	pid = fork();
	if (pid == 0)
		task(count, plugin, program, release[0]);
	setpgid(pid, pid);
	move_to_cgroup(pid);
	printf("task %d\n", (int)pid);
	fflush(stdout);
	if (write(release[1], "", 1) != 1)
		return 1;
	while (waitpid(pid, &status, 0) != pid)
		;
	printf("status %d\n", status);
	return 0;
}
