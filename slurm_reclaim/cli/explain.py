"""`reclaim explain JOB`: why a session counts as used, idle or unknown, and what follows."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from slurm_reclaim.cli import phrases
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.cli.job import job_argument
from slurm_reclaim.model.explanation import Explanation, Vote
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.model.words import amount, span

_HEADER = ("SIGNAL", "VALUE", "FLOOR", "LAST USE", "VOTE", "WHAT")
_RATES = frozenset({"gpu-pcie", "io", "network"})
_PERCENT = frozenset({"gpu", "gpu-memory", "gpu-codec"})


@click.command("explain")
@job_argument
@json_option
@pass_app
def command(app: App, job: str) -> None:
    """Say how the session of JOB is judged, and what follows.

    Each signal with its value, age and vote, the rule, what follows and when.
    """
    found = app.ask(lambda c: c.get(f"/v1/sessions/{job}/explain", Explanation))
    if app.output.json:
        app.output.value(asdict(found))
        return
    now = time.time()
    app.output.record(_pairs(found, now))
    app.output.table(_HEADER, [_row(vote, now) for vote in found.votes], empty="no signals yet")


def _pairs(found: Explanation, now: float) -> list[tuple[str, str]]:
    terms = f"window {span(found.window)} ({found.why}), grace {span(found.grace)}"
    return [
        ("job", f"{found.job} ({found.state})"),
        ("judged", f"{found.standing}: {found.reason}"),
        ("measured", f"{span(now - found.measured)} ago" if found.measured else "never"),
        ("terms", terms + (f", {found.action} only" if found.action == "notify" else "")),
        ("rule", found.rule or "none: the defaults of [idle]"),
        ("desk", found.desk),
        ("mode", found.mode),
        ("guard", found.guard),
        ("kept until", phrases.moment(found.kept_until)),
        ("deadline", phrases.moment(found.deadline)),
        ("gpus", "\n".join(map(_gpu, found.gpus))),
        ("next", found.follows),
    ]


def _gpu(gpu: GpuHeld) -> str:
    held = "memory held unknown" if gpu.memory < 0 else f"{amount(gpu.memory)} held (not use)"
    contexts = "" if gpu.contexts < 0 else f", {gpu.contexts} contexts"
    foreign = f", others on it: {', '.join(gpu.foreign)}" if gpu.foreign else ""
    return f"{gpu.index} {gpu.model} {gpu.uuid}: {held}{contexts}{foreign}"


def _row(vote: Vote, now: float) -> tuple[str, ...]:
    return (
        vote.signal,
        "unknown" if vote.value is None else _value(vote.signal, vote.value),
        "-" if vote.signal in ("terminal", "jupyter") else _value(vote.signal, vote.floor),
        f"{span(now - vote.used)} ago" if vote.used else "none seen",
        vote.vote,
        vote.what + (" (average over a minute)" if vote.averaged and not vote.what else ""),
    )


def _value(signal: str, value: float) -> str:
    if signal in _RATES:
        return f"{amount(value)}/s"
    if signal in _PERCENT:
        return f"{value:.1f} %"
    return f"{value:.2f} cores" if signal == "cpu" else f"{value:.0f}"
