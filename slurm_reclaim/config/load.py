"""Read the configuration: one file, the drop-ins beside it, every complaint at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from blake3 import blake3

from slurm_reclaim.config import notices, source
from slurm_reclaim.config.build import Building, absorb, finish
from slurm_reclaim.config.schema import DEFAULT_FILE, Config, Desk, Rule, Store
from slurm_reclaim.config.source import Key
from slurm_reclaim.config.values import nearest
from slurm_reclaim.errors import ConfigError
from slurm_reclaim.model.place import parse_place
from slurm_reclaim.model.sample import Signal
from slurm_reclaim.model.week import parse_day, parse_hours, parse_time, parse_zone

_REMOTE = re.compile(r"(s3|gs)://[a-z0-9][a-z0-9._-]+(/[\w.=-]+)*/?", re.ASCII)


@dataclass(frozen=True)
class Loaded:
    """`origins`: where each setting that a file names was set (`file:line`)."""

    config: Config
    files: tuple[str, ...]
    origins: dict[Key, str] = field(default_factory=dict)


def load(path: str | None = None) -> Config:
    """The configuration. Raises ConfigError with every complaint."""
    return load_with_origins(path).config


def load_with_origins(path: str | None = None) -> Loaded:
    path = path or DEFAULT_FILE
    names = source.files(path)
    building = Building()
    for name in names:
        try:
            absorb(building, source.read(name))
        except FileNotFoundError:
            raise _missing(name) from None
        except OSError as error:
            building.complaints.append(f"{name}: can't be read: {error.strerror}")
        except ValueError as error:
            building.complaints.append(f"{name}: {error}")
    config = finish(building)
    if not building.complaints:
        building.complaints += [f"{path}: {sentence}" for sentence in contradictions(config)]
    if building.complaints:
        raise ConfigError(
            building.complaints, hint="every setting is explained in docs/configuration.md"
        )
    return Loaded(config, tuple(names), dict(building.origins))


def contradictions(config: Config) -> list[str]:
    """Settings that are fine each by itself and not together."""
    found = []
    if config.agent.silent_after < 2 * config.agent.interval:
        found.append(
            "agent.silent_after: must be at least twice agent.interval, or every agent counts as "
            "down between two reports"
        )
    if config.cost.shortest > config.cost.longest:
        found.append("cost.shortest: must not be larger than cost.longest")
    for text in config.controller.node_addresses:
        try:
            parse_place(text)
        except ValueError as error:
            found.append(f"controller.node_addresses: {error}")
    return [
        *found,
        *_retention(config),
        *_unreadable_times(config),
        *_unknown_signals(config),
        *notices.contradictions(config.notice),
        *_remote(config.store),
    ]


def _remote(store: Store) -> Iterator[str]:
    if store.remote and not _REMOTE.fullmatch(store.remote):
        yield (
            f"store.remote: {store.remote!r} is no place such as s3://bucket/prefix or "
            "gs://bucket/prefix"
        )
    if store.upload == "after" and not store.remote:
        yield "store.upload: after has no meaning without store.remote"


def _retention(config: Config) -> Iterator[str]:
    rules = config.retention
    if rules.notice_again > rules.notice:
        yield "retention.notice_again: must not be larger than retention.notice"
    ways = {"mail", "webhook", "hook"} & set(config.notice.channels) & set(config.notice.enough)
    if rules.hibernated and not ways:
        yield (
            "retention.hibernated: no owner could ever be told: a session that sleeps has no "
            "terminal; put mail, webhook or hook into notice.channels and notice.enough"
        )


def _unreadable_times(config: Config) -> Iterator[str]:
    """Hours, days and time zones are texts to the schema; here they are read."""
    entries: list[tuple[str, Rule | Desk]] = []
    entries += [(f"rule[{n}]", rule) for n, rule in enumerate(config.rule, 1)]
    entries += [(f"desk[{n}]", desk) for n, desk in enumerate(config.desk, 1)]
    for place, entry in entries:
        readers: list[tuple[str, Callable[[str], object], list[str]]] = [
            ("hours", parse_hours, [entry.hours]),
            ("timezone", parse_zone, [entry.timezone]),
        ]
        if isinstance(entry, Desk):
            readers.append(("holidays", parse_day, entry.holidays))
            readers.append(("sweeps", parse_time, entry.sweeps))
        for name, read, texts in readers:
            for text in texts:
                try:
                    read(text)
                except ValueError as error:
                    yield f"{place}.{name}: {error}"


def _unknown_signals(config: Config) -> Iterator[str]:
    known = [signal.value for signal in Signal]
    places = [("idle.optional", config.idle.optional)]
    places += [(f"rule[{n}].optional", rule.optional) for n, rule in enumerate(config.rule, 1)]
    for place, names in places:
        for name in names:
            if name not in known:
                near = nearest(name, known)
                meant = f"; did you mean {near!r}?" if near else f"; known: {', '.join(known)}"
                yield f"{place}: {name!r} is no signal{meant}"


def digest(config: Config) -> str:
    """Short name of what is configured, equal where the settings are equal however they are
    written. Shown by `reclaim check`, which wants it to be the same on every host."""
    text = json.dumps(asdict(config), sort_keys=True, separators=(",", ":"))
    return str(blake3(text.encode()).hexdigest()[:16])


def _missing(name: str) -> ConfigError:
    folder = Path(name).parent
    first = "" if folder.is_dir() else f"mkdir -p {folder} && "
    return ConfigError(
        [f"{name}: there is no such file"],
        hint=f"make one with: {first}reclaim config sample > {name}\n"
        "(every setting has a default; controller.host, store.path and the [[adopt]] rules need "
        "yours)",
    )
