"""`reclaim score TRACE`: how well a configuration judges a labelled trace."""

from __future__ import annotations

from typing import Any

import click

from slurm_reclaim.cli import phrases
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.config.load import load
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import TraceError
from slurm_reclaim.policy.replay import Replay
from slurm_reclaim.policy.score import Score, Tally, score

_HEADER = (
    "BEHAVIOUR", "SESSIONS", "HOURS", "IDLE", "CAPTURED", "REACHED", "WARNED", "HIBERNATED",
    "WRONG", "BACK<15M",
)  # fmt: skip


@click.command("score")
@click.argument("trace", metavar="TRACE")
@click.option(
    "--policy", "path", metavar="FILE", help="Judge by FILE; else by the defaults of every setting."
)
@json_option
@pass_app
def command(app: App, trace: str, path: str | None) -> None:
    """Judge a policy by the labels of TRACE.

    Limits and the brake do not hold here: they would hide what the judgement is worth.
    """
    from slurm_reclaim.adapters.trace import read

    replayed = Replay(load(path) if path else Config(), limited=False).run(read(trace))
    found = score(replayed.seats.values(), replayed.acts)
    if (rate := found.total.rate()) is None:
        raise TraceError(f"{trace}: has no labels, so there is nothing to compare with")
    if app.output.json:
        app.output.value(_json(found))
        return
    rows = [_row(name, one) for name, one in sorted(found.behaviours.items())]
    app.output.table(_HEADER, [*rows, _row("all", found.total)], empty="")
    for act, behaviour in found.wrongs:
        when = phrases.moment(act.at)
        app.output.say(f"wrong: {act.session} ({behaviour}) at {when}: {act.reason}")
    app.output.record(_pairs(found.total, rate))


def _row(name: str, one: Tally) -> tuple[str, ...]:
    return (
        name,
        str(one.sessions),
        f"{one.hours:.1f}",
        f"{one.idle / 3600:.1f}",
        _percent(one.share),
        _percent(one.reached),
        str(one.warned),
        str(one.hibernated),
        str(one.wrong),
        str(one.regretted),
    )


def _pairs(total: Tally, rate: tuple[float, float, float]) -> list[tuple[str, str]]:
    return [
        (
            "false positives",
            f"{total.wrong} in {total.hours:.0f} session-hours: {rate[0]:.2f} per 1,000 "
            f"(95 %: {rate[1]:.2f} to {rate[2]:.2f})",
        ),
        ("warned in use", str(total.alarms)),
        (
            "idle captured",
            f"{_percent(total.share)} of the time, {_percent(total.gpu_share)} of GPU; "
            f"{_percent(total.reached)} of what comes later than window and grace",
        ),
        (
            "back within 15 min",
            f"{total.regretted} of {total.hibernated} ({_percent(total.regret)})",
        ),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _json(found: Score) -> dict[str, Any]:
    return {
        **_plain(found.total),
        "behaviours": {name: _plain(one) for name, one in sorted(found.behaviours.items())},
        "wrong": [
            {"session": act.session, "at": act.at, "behaviour": name, "reason": act.reason}
            for act, name in found.wrongs
        ],
    }


def _plain(one: Tally) -> dict[str, Any]:
    rate = one.rate()
    return {
        "sessions": one.sessions,
        "session_hours": one.hours,
        "false_positives": one.wrong,
        "per_1000_hours": rate and dict(zip(("rate", "low", "high"), rate, strict=True)),
        "idle_hours": one.idle / 3600,
        "captured_hours": one.captured / 3600,
        "captured": one.share,
        "captured_of_reachable": one.reached,
        "gpu_captured": one.gpu_share,
        "warned": one.warned,
        "warned_in_use": one.alarms,
        "hibernated": one.hibernated,
        "regretted": one.regretted,
        "regret": one.regret,
    }
