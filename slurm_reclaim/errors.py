"""Every error the product raises on purpose: one tree, one exit code each.

The docstring of a class is the sentence for docs/errors.md; the message of an instance says what
happened to whom, `hint` says what to do about it. `Refused` is our choice and is shown as it is;
`Unavailable` means the world did not answer and never changes a session's state;
`OperationFailed` means the world answered no.
"""

from __future__ import annotations

from collections.abc import Sequence


class ReclaimError(Exception):
    """Something went wrong that has no narrower name."""

    exit_code = 10

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class ConfigError(ReclaimError):
    """The configuration has mistakes; all of them are listed at once."""

    exit_code = 11

    def __init__(self, complaints: Sequence[str], *, hint: str = "") -> None:
        super().__init__("\n".join(complaints), hint=hint)
        self.complaints = tuple(complaints)


class TraceError(ReclaimError):
    """A trace can't be read or written; the line is named, and what is wrong with it."""

    exit_code = 12


class Refused(ReclaimError):
    """The request was understood and is not carried out; nothing changed."""

    exit_code = 20


class NotReclaimable(Refused):
    """This session can't be hibernated; the blockers are named."""

    exit_code = 21


class StaleOrder(Refused):
    """The order names an incarnation of the session that is no longer the living one."""

    exit_code = 24


class NotManaged(Refused):
    """The job exists, or may exist, but slurm-reclaim does not manage it."""

    exit_code = 25


class NotPermitted(Refused):
    """The caller neither owns the session nor is a Slurm operator."""

    exit_code = 26


class WrongNode(NotPermitted):
    """What was said of a node did not come from that node."""

    exit_code = 22


class WrongState(Refused):
    """The session is not in a state in which this can be done."""

    exit_code = 27


class BadRequest(Refused):
    """The request itself is malformed, for example a job id that is none."""

    exit_code = 28


class Unavailable(ReclaimError):
    """The world did not answer: this says nothing about the session and can be tried again."""

    exit_code = 30


class SchedulerUnavailable(Unavailable):
    """Slurm did not answer a command, or answered with something we can't read."""

    exit_code = 31


class AgentUnavailable(Unavailable):
    """The agent of the node has not been heard of lately."""

    exit_code = 32


class GpuUnavailable(Unavailable):
    """A GPU's driver did not answer, or said no."""

    exit_code = 38


class StoreUnavailable(Unavailable):
    """The checkpoint store can't be read or written, or has no room."""

    exit_code = 34


class KeyUnavailable(StoreUnavailable):
    """The keys of the store are missing, unreadable, or open to others than root."""

    exit_code = 33


class ControllerUnavailable(Unavailable):
    """reclaimd can't be reached."""

    exit_code = 35


class AuthUnavailable(Unavailable):
    """MUNGE did not give or take a credential."""

    exit_code = 36


class CredentialRefused(AuthUnavailable):
    """A MUNGE credential was expired, from the future, replayed, forged or meant for another."""

    exit_code = 37


class OperationFailed(ReclaimError):
    """The operation was carried out and did not succeed."""

    exit_code = 40


class DumpFailed(OperationFailed):
    """The process tree could not be dumped; it runs on."""

    exit_code = 41


class GpuNotGivenBack(DumpFailed):
    """Before the commit, a process could not be given back the state of its GPUs."""

    exit_code = 46


class RestoreFailed(OperationFailed):
    """The process tree could not be restored; the checkpoint is kept."""

    exit_code = 42


class DoesNotFit(RestoreFailed):
    """A file, a port or the memory is not as the checkpoint needs it; nothing was started."""

    exit_code = 45


class RequeueFailed(OperationFailed):
    """Slurm refused to requeue, hold, release or update the job."""

    exit_code = 43


class CancelledByActivity(OperationFailed):
    """The session was used again before its checkpoint was committed; it runs on."""

    exit_code = 44


class IntegrityError(ReclaimError):
    """A checkpoint is incomplete or does not match its manifest."""

    exit_code = 50


class SealBroken(IntegrityError):
    """A manifest is not sealed, was changed, or was made for another place."""

    exit_code = 51


class CredentialsForged(IntegrityError):
    """An image would give its processes other rights than their owner's."""

    exit_code = 52


class ProgrammingError(ReclaimError):
    """A rule of ours was broken by ourselves; please report it."""

    exit_code = 70


class IllegalTransition(ProgrammingError):
    """A fact was applied to a session in a state in which it can't happen."""

    exit_code = 71
