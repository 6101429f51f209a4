"""The sample file, the reference page and `reclaim config show`, all made from the schema."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from typing import Any, get_origin

from slurm_reclaim.config import schema
from slurm_reclaim.config.build import (
    Setting,
    default,
    header,
    lists,
    plain,
    sections,
    settings,
)
from slurm_reclaim.config.load import Loaded
from slurm_reclaim.config.source import Key
from slurm_reclaim.config.units import format_duration, format_size

_SAMPLE_HEAD = """\
# Configuration of slurm-reclaim: /etc/slurm-reclaim/slurm-reclaim.toml, the same on every host.
#
# Every setting is shown with its default and commented out: what you don't set follows the
# defaults of the version you run. Files in conf.d/*.toml beside this one are read after it in
# name order and may set the same keys. Durations and sizes carry a unit ("45m", "64MiB").
# `reclaim config check` names every mistake, `reclaim config show` what is in force and why.
"""

_PAGE_HEAD = """\
# Configuration

<!-- Rendered from slurm_reclaim/config/schema.py by `make docs`; changes here are lost. -->

One file, `/etc/slurm-reclaim/slurm-reclaim.toml`, the same on every host: the controller, the
compute nodes and the login nodes read it. It is readable by everyone (mode 0644) and holds no
secret: authentication is MUNGE's.

- Files `conf.d/*.toml` beside it are read after it, in name order. A setting that is set twice
  has the value read last; `[[adopt]]` rules add up in the order in which they are read.
- Durations and sizes carry a unit: `"30s"`, `"45m"`, `"1h30m"`; `"64MiB"`, `"2TB"`. Bare numbers
  are refused, because nobody agrees whether 30 is seconds or minutes.
- An unknown setting is a mistake, not ignored. `reclaim config check` names every mistake at once
  with file, line and the nearest known setting; `reclaim config show` prints what is in force and
  where each value comes from.
- reclaimd and reclaim-agent read it again on SIGHUP (`systemctl reload`). If it has mistakes by
  then, they keep what they have and say so.
"""


def literal(kind: Any, value: Any) -> str:
    """A value as it stands in the TOML file."""
    kind = plain(kind)
    if kind is schema.Seconds:
        return f'"{format_duration(value)}"'
    if kind is schema.Bytes:
        return f'"{format_size(value)}"'
    return json.dumps(value)


def sample() -> str:
    """etc/slurm-reclaim.toml."""
    blocks = [_SAMPLE_HEAD, *_sample_settings(schema.Config)]
    for name, kind, sentence in sections():
        comment = "\n".join(textwrap.wrap(f"# {sentence}", 98, subsequent_indent="# "))
        # A commented-out [[adopt]] must stay one: a live empty rule would adopt every job.
        blocks.append(f"{comment}\n{'# ' if name in lists() else ''}{header(name)}\n")
        blocks += _sample_settings(kind)
    return "\n".join(blocks)


def _sample_settings(kind: type) -> list[str]:
    blocks = []
    for name, (entry, hint) in settings(kind).items():
        lines = textwrap.wrap(entry.metadata["doc"], 96)
        if entry.metadata["choices"]:
            lines.append(f"{_choose(hint)}: {', '.join(entry.metadata['choices'])}")
        if entry.metadata["example"]:
            lines.append(f"example: {_example(entry, hint)}")
        comment = "\n".join(f"## {line}" for line in lines)
        value = default(entry)
        shown = _example(entry, hint) if value is None else literal(hint, value)
        blocks.append(f"{comment}\n# {name} = {shown}\n")
    return blocks


def _choose(kind: Any) -> str:
    return "any of" if get_origin(kind) is list else "one of"


def _example(entry: dataclasses.Field[Any], kind: Any) -> str:
    text: str = entry.metadata["example"]
    return text if get_origin(kind) is list or plain(kind) is float else f'"{text}"'


def page() -> str:
    """docs/configuration.md."""
    parts = [_PAGE_HEAD, "## Top level\n", _page_table(schema.Config)]
    for name, kind, sentence in sections():
        parts += [f"## `{header(name)}`\n", sentence + "\n"]
        parts.append(_page_table(kind))
    parts.append(_ADOPT_NOTES)
    return "\n".join(parts)


def _page_table(kind: type) -> str:
    rows = ["| setting | type | default | |", "|---|---|---|---|"]
    for name, (entry, hint) in settings(kind).items():
        doc = entry.metadata["doc"].replace("|", "\\|")
        if entry.metadata["choices"]:
            doc += (
                f" {_choose(hint).capitalize()} "
                + ", ".join(f"`{c}`" for c in entry.metadata["choices"])
                + "."
            )
        if entry.metadata["example"]:
            doc += f" Example: `{_example(entry, hint)}`."
        rows.append(f"| `{name}` | {_TYPE_WORDS[plain(hint)]} | {_default(hint, entry)} | {doc} |")
    return "\n".join(rows) + "\n"


def _default(hint: Any, entry: dataclasses.Field[Any]) -> str:
    value = default(entry)
    return "" if value is None else f"`{literal(hint, value)}`"


_TYPE_WORDS: dict[Any, str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    schema.Path: "path",
    schema.Seconds: "duration",
    schema.Bytes: "size",
    list[str]: "list of texts",
}

_ADOPT_NOTES = """\
Patterns are the shell's (`*`, `?`, `[abc]`), case matters. An example:

```toml
[[adopt]]
name = "urgent work is left alone"
manage = false
qos = ["urgent"]

[[adopt]]
name = "notebooks"
partition = ["gpu", "gpu-*"]
job_name = ["spawner-jupyterhub", "jupyter*"]
```

`gres` is compared with `gpu`, `gpu:<count>`, `gpu:<type>` and `gpu:<type>:<count>` of what the job
was given, each also with `gres/` in front. Slurm tells a job's GPU type at its start only where
the job asked for it with `--gpus=<type>:<count>` or the like.

Jobs on several nodes and heterogeneous jobs are never managed, whatever a rule or
`--reclaim=on` says: only single-node batch jobs can be hibernated.
"""


@dataclasses.dataclass(frozen=True)
class Shown:
    """One setting in force: its key path, its value as TOML and as a number, text or list
    (durations in seconds, sizes in bytes), and where it comes from."""

    key: str
    value: str
    plain: Any
    origin: str


def in_force(loaded: Loaded) -> list[Shown]:
    """Every setting with its origin: `file:line` or `default`."""
    shown = [
        _shown(".".join(key), table, setting, loaded.origins.get(key, "default"))
        for key, table, setting in _plain_settings(loaded.config)
    ]
    for name, kind, _ in sections():
        entries = getattr(loaded.config, name) if name in lists() else []
        for number, entry in enumerate(entries):
            origin = loaded.origins.get((name, str(number)), "default")
            shown += [
                _shown(f"{name}[{number + 1}].{key}", entry, setting, origin)
                for key, setting in settings(kind).items()
                if getattr(entry, key) != default(setting[0]) or key == "manage"
            ]
    return shown


def _plain_settings(config: schema.Config) -> Iterator[tuple[Key, Any, Setting]]:
    """Every setting that is not part of a list, and the table it stands in."""
    for name, setting in settings(schema.Config).items():
        yield (name,), config, setting
    for section, kind, _ in sections():
        if section not in lists():
            for name, setting in settings(kind).items():
                yield (section, name), getattr(config, section), setting


def _shown(key: str, table: Any, setting: Setting, origin: str) -> Shown:
    entry, kind = setting
    value = getattr(table, entry.name)
    return Shown(key, literal(kind, value), value, origin)
