"""Answers `reclaim` commands, one JSON list [user, word...] a line of input, each in a child of its
own: the command line as it is, without the start of an interpreter. Says [status, stdout, stderr].
"""

import json
import os
import pwd
import sys
import tempfile

import slurm_reclaim.adapters.transport.client
import slurm_reclaim.adapters.transport.munge
import slurm_reclaim.cli.events
import slurm_reclaim.cli.explain
import slurm_reclaim.cli.show  # noqa: F401
from slurm_reclaim.cli.main import reclaim


def become(user: str) -> None:
    if user != "root":
        account = pwd.getpwnam(user)
        os.initgroups(user, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)


def answer(user: str, words: list[str]) -> list:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            status = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                become(user)
                reclaim(words, prog_name="reclaim")
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    return [os.waitstatus_to_exitcode(ended), *said]


for line in sys.stdin:
    user, *words = json.loads(line)
    print(json.dumps(answer(user, words)), flush=True)
