"""The words of a notice: a site's text file or the built-in one, filled in.

`<kind>.txt` begins with a line `Subject: ...`; the rest is the body. `$name` stands for what is
known of the session (NAMES), `$$` for a dollar sign.
"""

from __future__ import annotations

import difflib
import os
import stat
import time
from dataclasses import dataclass
from string import Template

from slurm_reclaim.adapters.notify.builtin import TEXTS
from slurm_reclaim.model.notice import Notice, NoticeKind
from slurm_reclaim.model.printable import line, lines, width, wrap
from slurm_reclaim.model.words import amount

MOST_BYTES = 64 << 10
COLUMNS = 78
MOST_LINES = 20  # on a terminal, where somebody may be in the middle of something
_LABEL = "Subject:"
_FOR_EVER = 1e11  # seconds; what a clock can show

NAMES = {
    "job": "job id as Slurm writes it, `123` or `123_4`",
    "job_name": "name of the job",
    "user": "its owner",
    "node": "where it runs",
    "cluster": "name of the cluster",
    "partition": "its partition",
    "account": "its account",
    "tres": "what it was given, as Slurm writes it",
    "deadline": "when it will be hibernated (`expiry`: ended, `upgrade`: lost), in the "
    "controller's time zone",
    "minutes": "minutes until then, a number",
    "left": "the same in words: `15 minutes`",
    "idle": "for how long it has been idle, in words",
    "vram": "GPU memory that it holds (hibernated: held), `38.5 GiB` or `none`",
    "rule": "name of the rule that applies to it",
    "reason": "why, a sentence without a full stop",
    "keep": "`reclaim keep 123`",
    "restore": "`reclaim restore 123`",
    "explain": "`reclaim explain 123`",
}


@dataclass(frozen=True, slots=True)
class Text:
    subject: str
    body: str


def parse(text: str) -> Text:
    """The two parts of a text file. Raises ValueError with what is wrong."""
    first, _, body = text.replace("\r\n", "\n").partition("\n")
    subject = first.removeprefix(_LABEL).strip()
    if not first.startswith(_LABEL) or not subject:
        raise ValueError(f'the first line must be "{_LABEL}" and a subject')
    if not body.strip():
        raise ValueError("there is no text below the subject")
    if any(ord(c) < 32 and c not in "\n\t" for c in text.replace("\r\n", "\n")):
        raise ValueError("it has control characters")
    for part in (subject, body):
        _check_names(part)
    return Text(subject, body.strip("\n").rstrip() + "\n")


def _check_names(text: str) -> None:
    for found in Template.pattern.finditer(text):
        name = found["named"] or found["braced"]
        if found["invalid"] is not None:
            raise ValueError("a $ that begins no name; write $$ for a dollar sign")
        if name is not None and name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1)
            meant = f"did you mean ${near[0]}?" if near else f"known: {', '.join(NAMES)}"
            raise ValueError(f"unknown name ${name}; {meant}")


def read(folder: str, kind: NoticeKind) -> tuple[Text, str]:
    """The text to be used, and what is wrong with the site's own ("": nothing, or it has none)."""
    path = f"{folder}/{kind.value}.txt"
    try:
        return parse(_content(path)), ""
    except FileNotFoundError:
        problem = ""
    except OSError as error:
        problem = f"{path}: can't be read: {error.strerror}; the built-in text is used"
    except ValueError as error:
        problem = f"{path}: {error}; the built-in text is used"
    return parse(TEXTS[kind]), problem


def _content(path: str) -> str:
    """Raises OSError, ValueError. Whatever lies there, it is read in bounded time."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES >> 10} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None


def mistakes(folder: str) -> list[str]:
    """Everything wrong with a site's texts, files that are never read among it."""
    found = [problem for kind in NoticeKind if (problem := read(folder, kind)[1])]
    known = [f"{kind.value}.txt" for kind in NoticeKind]
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return found
    except OSError as error:
        return [f"{folder}: can't be read: {error.strerror}; the built-in texts are used"]
    for name in names:
        if name.endswith(".txt") and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            found.append(f"{folder}/{line(name)}: there is no such notice; {meant}")
    return found


def fill(text: Text, notice: Notice, now: float) -> Text:
    """Subject and body as they are sent."""
    values = _values(notice, now)
    return Text(
        line(Template(text.subject).substitute(values)),
        lines(Template(text.body).substitute(values)),
    )


def for_terminal(text: Text) -> str:
    """A filled text as a terminal of 80 columns shows it, between two blank lines."""
    shown = wrap(f"*** slurm-reclaim: {text.subject}", COLUMNS)
    for each in text.body.rstrip().split("\n"):
        # Lines that fit stay as they are: their author may have put words below each other.
        shown += [each] if width(each) <= COLUMNS else wrap(each, COLUMNS)
    if len(shown) > MOST_LINES:
        shown[MOST_LINES - 1 :] = ["..."]
    return "\n" + "\n".join(shown) + "\n\n"


def _values(notice: Notice, now: float) -> dict[str, str]:
    left = max(0.0, notice.deadline - now) if notice.deadline else 0.0
    job = line(notice.job or str(notice.job_id), 40)
    return {
        "job": job,
        "job_name": line(notice.job_name, 40),
        "user": line(notice.user, 40),
        "node": line(notice.node, 64),
        "cluster": line(notice.cluster, 64),
        "partition": line(notice.partition, 64),
        "account": line(notice.account, 64),
        "tres": line(notice.tres, 200),
        "deadline": _moment(notice.deadline),
        "minutes": str(round(min(left, _FOR_EVER) / 60)),
        "left": _span(left),
        "idle": _span(notice.idle),
        "vram": amount(notice.vram) if notice.vram else "none",
        "rule": line(notice.rule, 64) or "-",
        "reason": line(notice.reason, 300).rstrip(".") or "-",
        "keep": f"reclaim keep {job}",
        "restore": f"reclaim restore {job}",
        "explain": f"reclaim explain {job}",
    }


def _moment(at: float) -> str:
    """Day, minute and time zone, all of this host."""
    if not 0 < at < _FOR_EVER:
        return "-"
    return time.strftime("%a %d %b %H:%M %Z", time.localtime(at))


def _span(seconds: float) -> str:
    """To the minute, as people say it."""
    minutes = round(min(seconds, _FOR_EVER) / 60)
    if minutes < 1:
        return "less than a minute"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [
        f"{count} {unit}{'' if count == 1 else 's'}"
        for count, unit in ((days, "day"), (hours, "hour"), (minutes, "minute"))
        if count
    ]
    return " ".join(parts[:2])
