"""The ways to people: switched on, and able to reach them. Looked at on the controller's host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.schema import Config, Notices

_FAMILY = Family("notices")
_ADMINS_REACHED_BY = {"webhook", "hook"}


class Hook(Protocol):
    """`problem`: why it is never run; `ignored`: why it is no hook."""

    @property
    def name(self) -> str: ...
    @property
    def problem(self) -> str: ...
    @property
    def ignored(self) -> str: ...


@dataclass(frozen=True)
class Channels:
    """How to look at each. `greet`: the mail server's answer to EHLO, raises ValueError; `secret`
    (path, user): raises ValueError; `hooks` (directory, user): raises OSError; `texts` (directory):
    what is wrong with a site's own; `origin`: a URL without what may be secret in it."""

    greet: Callable[[Notices], str]
    secret: Callable[[str, str], object]
    hooks: Callable[[str, str], Sequence[Hook]]
    texts: Callable[[str], Sequence[str]]
    origin: Callable[[str], str]


def judge(host: Host, config: Config, channels: Channels) -> list[Check]:
    settings = config.notice
    checks = [_enough(settings)]
    if host.uid != 0:
        return [*checks, _FAMILY.unchecked("each channel", "only root can look", "run it as root")]
    if not host.exists(config.controller.state):
        there = f"{config.controller.host}, the controller's host"
        return [*checks, _FAMILY.unchecked("each channel", f"is looked at on {there}")]
    if "mail" in settings.channels:
        checks += [_mail_server(settings, channels), _admins(settings)]
    if "webhook" in settings.channels:
        checks += [_webhook(settings, channels), _secret(config, channels)]
    if "hook" in settings.channels:
        checks += _hooks(config, channels)
    return [*checks, *_texts(settings, channels)]


def _enough(settings: Notices) -> Check:
    name = "channels"
    counting = [each for each in settings.channels if each in settings.enough]
    seen = f"{', '.join(settings.channels) or 'none'}; enough: {', '.join(counting) or 'none'}"
    if not counting:
        return _FAMILY.warning(
            name, seen, "nobody can be warned, so nothing is hibernated: see notice.enough"
        )
    if counting == ["terminal"]:
        return _FAMILY.warning(
            name,
            seen,
            "a notebook without an open terminal can't be warned and is never hibernated: add "
            "mail, webhook or hook",
        )
    return _FAMILY.ok(name, seen)


def _mail_server(settings: Notices, channels: Channels) -> Check:
    name = "mail server"
    where = f"{settings.smtp_host}:{settings.smtp_port} ({settings.smtp_tls})"
    try:
        said = channels.greet(settings)
    except ValueError as error:
        return _FAMILY.failed(name, str(error), "notice.smtp_host, smtp_port, smtp_tls")
    return _FAMILY.ok(name, f"{where} says {said}")


def _admins(settings: Notices) -> Check:
    name = "admins"
    if settings.admins or _ADMINS_REACHED_BY & set(settings.channels):
        return _FAMILY.ok(name, ", ".join(settings.admins) or "by webhook or hook")
    return _FAMILY.warning(
        name, "none", "nobody is told when the brake is pulled: set notice.admins"
    )


def _webhook(settings: Notices, channels: Channels) -> Check:
    name, seen = "webhook", channels.origin(settings.webhook)
    if settings.webhook.startswith("http:"):
        return _FAMILY.warning(name, seen, "names and reasons travel unencrypted: use https")
    return _FAMILY.ok(name, seen)


def _secret(config: Config, channels: Channels) -> Check:
    name, path = "webhook secret", config.notice.webhook_secret
    if not path:
        return _FAMILY.ok(name, "none: what is sent is not signed")
    try:
        channels.secret(path, config.controller.user)
    except ValueError as error:
        return _FAMILY.failed(name, str(error), "see docs/notices.md")
    return _FAMILY.ok(name, f"{path} is {config.controller.user}'s only")


def _hooks(config: Config, channels: Channels) -> Iterator[Check]:
    name, folder = "hooks", config.notice.hooks
    try:
        found = channels.hooks(folder, config.controller.user)
    except OSError as error:
        yield _FAMILY.failed(name, f"{folder}: {error.strerror}", f"install -d {folder}")
        return
    good = [hook.name for hook in found if not hook.problem and not hook.ignored]
    if good:
        yield _FAMILY.ok(name, ", ".join(good))
    else:
        yield _FAMILY.failed(name, f"{folder} has none that can be run", "see docs/notices.md")
    for hook in found:
        if hook.problem:
            hint = f"see to {folder}/{hook.name}"
            yield _FAMILY.failed(name, f"{hook.name}: {hook.problem}", hint)
        elif hook.ignored:
            hint = "it is not run as a hook"
            yield _FAMILY.warning(name, f"{hook.name}: {hook.ignored}", hint)


def _texts(settings: Notices, channels: Channels) -> list[Check]:
    wrong = channels.texts(settings.texts)
    if wrong:
        return [_FAMILY.warning("texts", each, "see docs/notices.md") for each in wrong]
    return [_FAMILY.ok("texts", f"{settings.texts}, else built in")]
