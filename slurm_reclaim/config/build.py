"""From TOML tables to the schema's classes: every complaint is collected, none is raised."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from slurm_reclaim.config import schema
from slurm_reclaim.config.source import Key, Source
from slurm_reclaim.config.units import format_duration, format_size, parse_duration, parse_size
from slurm_reclaim.config.values import nearest

# A field of the schema and its type.
Setting = tuple[dataclasses.Field[Any], Any]


class Complaint(ValueError):
    """One thing wrong with one value, as a sentence that follows "key: "."""


@dataclass
class Building:
    """What was read so far. `values` maps the path of a setting to its value, `origins` to where
    it was set; settings that no file names are in neither. `entries`: those of the lists of tables,
    such as [[adopt]], by the list's name."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    entries: dict[str, list[Any]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def complain(self, source: Source, key: Key, what: str) -> None:
        self.complaints.append(f"{source.where(key)}: {show(key)}: {what}")


def show(key: Key) -> str:
    """A key path for people: list entries are counted from 1."""
    text = ""
    for part in key:
        if part.isdigit():
            text += f"[{int(part) + 1}]"
        else:
            text += f".{part}" if text else part
    return text


@cache
def sections() -> tuple[tuple[str, Any, str], ...]:
    """(name, class, one sentence) of every table of the configuration file, the lists last."""
    hints = get_type_hints(schema.Config)
    found = []
    for entry in dataclasses.fields(schema.Config):
        kind = hints[entry.name]
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        if dataclasses.is_dataclass(kind):
            found.append((entry.name, kind, _sentence(kind)))
    return tuple(found)


@cache
def lists() -> frozenset[str]:
    """Names of the tables that may be given several times: [[adopt]] and its like."""
    hints = get_type_hints(schema.Config)
    return frozenset(name for name, kind in hints.items() if get_origin(kind) is list)


def header(name: str) -> str:
    """A table's name as it stands in the file."""
    return f"[[{name}]]" if name in lists() else f"[{name}]"


def _sentence(kind: Any) -> str:
    """What follows "[table]: " in the docstring; Python 3.13 and later have it unindented."""
    return " ".join((kind.__doc__ or "").partition(": ")[2].split())


@cache
def settings(kind: type) -> Mapping[str, Setting]:
    """name -> (field, type) of the settings that stand directly in this table."""
    hints = get_type_hints(kind)
    return {
        entry.name: (entry, hints[entry.name])
        for entry in dataclasses.fields(kind)
        if "doc" in entry.metadata
    }


def default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return entry.default


def absorb(building: Building, source: Source) -> None:
    """Add one file: what it sets replaces what was set before, its [[...]] entries come after."""
    tables = {name: kind for name, kind, _ in sections()}
    top = settings(schema.Config)
    for name, value in source.table.items():
        if name in lists():
            _absorb_entries(building, source, name, tables[name], value)
        elif name in tables:
            if isinstance(value, dict):
                _absorb_table(building, source, (name,), tables[name], value)
            else:
                building.complain(source, (name,), f"is a table: write [{name}]")
        elif name in top:
            _absorb_value(building, source, (name,), top[name], value)
        else:
            building.complain(source, (name,), _unknown((name,), [*top, *tables]))


def finish(building: Building) -> schema.Config:
    """The configuration; meaningless while there are complaints."""
    values: dict[str, Any] = {k[0]: v for k, v in building.values.items() if len(k) == 1}
    for name, kind, _ in sections():
        if name not in lists():
            values[name] = kind(
                **{k[1]: v for k, v in building.values.items() if len(k) == 2 and k[0] == name}
            )
    values.update({name: list(entries) for name, entries in building.entries.items()})
    return schema.Config(**values)


def _absorb_table(
    building: Building, source: Source, at: Key, kind: type, table: dict[str, Any]
) -> None:
    known = settings(kind)
    for name, value in table.items():
        if name in known:
            _absorb_value(building, source, (*at, name), known[name], value)
        else:
            building.complain(source, (*at, name), _unknown((*at, name), list(known)))


def _absorb_value(
    building: Building,
    source: Source,
    key: Key,
    setting: Setting,
    value: Any,
) -> None:
    try:
        building.values[key] = convert(*setting, value)
        building.origins[key] = source.where(key)
    except Complaint as complaint:
        building.complain(source, key, str(complaint))


def _absorb_entries(
    building: Building, source: Source, table: str, kind: type, entries: Any
) -> None:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        building.complain(source, (table,), f"is a list of tables: write [[{table}]] above each")
        return
    made = building.entries.setdefault(table, [])
    for number, entry in enumerate(entries):
        own = Building()
        at = (table, str(number))
        _absorb_table(own, source, at, kind, entry)
        building.complaints += own.complaints
        values = {key[2]: value for key, value in own.values.items()}
        for name, value in values.items():
            if isinstance(value, list) and not value:
                building.complain(
                    source, (*at, name), "an empty list matches no job; leave the key out"
                )
        building.origins[table, str(len(made))] = source.where(at)
        made.append(kind(**values))


def plain(kind: Any) -> Any:
    """The type of a setting that may be left out (`Seconds | None`) without the None."""
    if get_origin(kind) in (Union, UnionType):
        return next(part for part in get_args(kind) if part is not NoneType)
    return kind


def convert(entry: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """The value in memory. Raises Complaint."""
    if get_origin(kind) is list:
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise Complaint('expected a list of texts, such as ["gpu", "a100*"]')
        for each in value:
            _check_choice(entry, each)
        return list(value)
    kind = plain(kind)
    result = _SCALARS[kind](value)
    _check_choice(entry, result)
    if kind is schema.Path and not result and default(entry):
        raise Complaint("must not be empty")
    _check_bounds(entry, kind, result)
    return result


def _check_choice(entry: dataclasses.Field[Any], value: Any) -> None:
    choices = entry.metadata["choices"]
    if choices and value not in choices:
        near = nearest(str(value), choices)
        meant = f"; did you mean {near!r}?" if near else ""
        raise Complaint(f"{value!r} is none of {', '.join(choices)}{meant}")


def _check_bounds(entry: dataclasses.Field[Any], kind: Any, value: Any) -> None:
    write: Callable[[Any], str] = {
        schema.Seconds: format_duration, schema.Bytes: format_size
    }.get(kind, str)  # fmt: skip
    least, most = entry.metadata["least"], entry.metadata["most"]
    if least is not None and value < least:
        raise Complaint(f"{write(value)} is too small; at least {write(least)}")
    if most is not None and value > most:
        raise Complaint(f"{write(value)} is too large; at most {write(most)}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Complaint(f"expected a text in quotes, not {value!r}")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Complaint(f"expected a whole number, not {value!r}")
    return value


def _real(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value):
        raise Complaint(f"expected a number, not {value!r}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Complaint(f"expected true or false, not {value!r}")
    return value


def _path(value: Any) -> str:
    text = _text(value)
    if text and not text.startswith("/"):
        raise Complaint(f"expected an absolute path, not {text!r}")
    return text


def _with_unit(parse: Callable[[str], float | int]) -> Callable[[Any], float | int]:
    def read(value: Any) -> float | int:
        # A bare number is refused on purpose: nobody agrees whether 30 is seconds or minutes.
        try:
            return parse(value if isinstance(value, str) else "")
        except ValueError as error:
            raise Complaint(f"{error}, not {value!r}") from None

    return read


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _whole,
    float: _real,
    bool: _flag,
    schema.Path: _path,
    schema.Seconds: _with_unit(parse_duration),
    schema.Bytes: _with_unit(parse_size),
}


def _unknown(key: Key, siblings: list[str]) -> str:
    """ "unknown setting", with the nearest known key of the same table, else of any other."""
    name = key[-1]
    near = nearest(name, siblings)
    if near:
        return f"unknown setting; did you mean {show((*key[:-1], near))}?"
    for table, kind, _ in sections():
        if name in settings(kind):
            return f"unknown setting; did you mean {name} in [{table}]?"
    return f"unknown setting; known here: {', '.join(sorted(siblings))}"
