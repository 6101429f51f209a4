"""Settings of [notice] that can't be, with the nearest known name where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_reclaim.config.load import load
from slurm_reclaim.config.schema import CHANNELS, Config
from slurm_reclaim.errors import ConfigError
from slurm_reclaim.model.notice import Channel

MAIL = 'channels = ["mail"]\nmail_to = "{user}@x.org"\nmail_from = "slurm@x.org"\n'
HOOK = 'channels = ["webhook"]\n'


def complaints(folder: Path, text: str) -> list[str]:
    path = folder / "x.toml"
    path.write_text("[notice]\n" + text)
    try:
        load(str(path))
    except ConfigError as error:
        return [line.removeprefix(f"{folder}/x.toml") for line in error.complaints]
    return []


def test_the_names_are_those_of_the_model() -> None:
    assert set(CHANNELS) == {channel.value for channel in Channel}
    assert set(Config().notice.channels + Config().notice.enough) <= set(CHANNELS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('channels = ["terminal", "male"]',
         ":2: notice.channels: 'male' is none of terminal, comment, mail, webhook, hook; "
         "did you mean 'mail'?"),
        ('enough = ["terminals"]',
         ":2: notice.enough: 'terminals' is none of terminal, comment, mail, webhook, hook; "
         "did you mean 'terminal'?"),
        ("enough = []", ": notice.enough: names no channel"),
        ('channels = ["comment"]', ": notice.enough: none of its channels is in notice.channels"),
        ("channels = []", ": notice.enough: none of its channels is in notice.channels"),
        (MAIL.replace("slurm@x.org", "slurm"), ": notice.mail_from: 'slurm' is no mail address"),
        (MAIL.replace("{user}@x.org", "{user}, eve@x.org"), ": notice.mail_to: "),
        (MAIL.replace("{user}@x.org", "{username}@x.org"), ": notice.mail_to: "),
        (MAIL.replace("{user}@x.org", "{user}@x.org\\nBcc: eve@x.org"), ": notice.mail_to: "),
        (MAIL + 'admins = ["ops@x.org", "a@x.org,b@x.org"]', ": notice.admins: "),
        (HOOK, ": notice.webhook: notice.channels has webhook, so it needs a URL"),
        (HOOK + 'webhook = "hub.example/x"', ": notice.webhook: is no http:// or https:// URL"),
        (HOOK + 'webhook = "ftp://hub.example/"', ": notice.webhook: is no http:// or https://"),
        (HOOK + 'webhook = "https://"', ": notice.webhook: is no http:// or https:// URL"),
        (HOOK + 'webhook = "https://[::1"', ": notice.webhook: is no http:// or https:// URL"),
        (HOOK + 'webhook = "https://x:99999/"', ": notice.webhook: is no http:// or https:// URL"),
    ],
)  # fmt: skip
def test_named(tmp_path: Path, text: str, complaint: str) -> None:
    (found,) = complaints(tmp_path, text)
    assert found.startswith(complaint)


@pytest.mark.parametrize(
    "text",
    [
        "", MAIL, MAIL + 'admins = ["ops@x.org", "root"]',
        MAIL.replace('"slurm@x.org"', '"Slurm <slurm@x.org>"').replace("{user}@x.org", "{user}"),
        HOOK + 'webhook = "https://hub.example:8443/T/x?y=z"', 'mail_from = "not used"',
        'channels = ["hook"]',
    ],
)  # fmt: skip
def test_fine(tmp_path: Path, text: str) -> None:
    assert complaints(tmp_path, text) == []
