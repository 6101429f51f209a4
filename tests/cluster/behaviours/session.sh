#!/bin/bash
# Every behaviour runs as this batch job: session.sh SCRIPT. It says which simulated card the job was
# given (the one whose device file it may open), so that the card can be scripted.
cd /shared/behaviours || exit 1
python3 - "$SLURM_JOB_NAME" <<'PY'
import errno, glob, os, sys
for path in sorted(glob.glob("/dev/nvidia[0-9]*")):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            continue
    with open(f"/shared/behaviours/cards/{sys.argv[1]}", "w") as file:
        file.write(f"{os.uname().nodename} {path.removeprefix('/dev/nvidia')}")
PY
exec bash "$1"
