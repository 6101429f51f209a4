"""The family notices, with the real looks at files and an SMTP server."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from slurm_reclaim.checks import notices
from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Verdict
from slurm_reclaim.cli.check import channels
from slurm_reclaim.config.schema import Config

OK, WARNING, FAILED = Verdict.OK, Verdict.WARNING, Verdict.FAILED


class Controller(Host):
    """Root on the controller's host."""

    uid = 0

    def exists(self, path: str) -> bool:
        return True


def config(tmp_path: Path, **changes: Any) -> Config:
    made = Config()
    values = {
        "texts": str(tmp_path / "texts"), "hooks": str(tmp_path / "hooks"), "timeout": 1.0,
        "smtp_host": "127.0.0.1", **changes,
    }  # fmt: skip
    account = replace(made.controller, user="root")
    return replace(made, controller=account, notice=replace(made.notice, **values))


def judge(settings: Config, host: Host | None = None) -> dict[str, Check]:
    found = notices.judge(host or Controller(), settings, channels())
    assert all(check.hint or check.verdict in (OK, Verdict.NOT_CHECKED) for check in found)
    return {check.name: check for check in found}


@pytest.fixture
def smtp_port():
    """A mail server in a thread: the checks run a loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncio.Server:
        return await loop.create_server(
            lambda: SMTP(object(), hostname="mail.test", loop=loop), "127.0.0.1", 0
        )

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.mark.parametrize(
    ("names", "verdict", "hint"),
    [
        (["terminal", "comment"], WARNING, "a notebook without an open terminal"),
        (["comment"], WARNING, "nobody can be warned"),
        ([], WARNING, "nobody can be warned"),
        (["terminal", "hook"], OK, ""),
        (["hook"], OK, ""),
    ],
)
def test_channels(tmp_path: Path, names: list[str], verdict: Verdict, hint: str) -> None:
    check = judge(config(tmp_path, channels=names))["channels"]
    assert check.verdict is verdict
    assert check.hint.startswith(hint)


def test_mail_server(tmp_path: Path, smtp_port: int) -> None:
    settings = config(tmp_path, channels=["mail"], smtp_port=smtp_port, admins=["ops@x.org"])
    found = judge(settings)
    assert found["mail server"].verdict is OK
    assert "mail.test" in found["mail server"].what
    assert found["admins"].verdict is OK
    tls = replace(settings, notice=replace(settings.notice, smtp_tls="starttls"))
    assert judge(tls)["mail server"].verdict is FAILED


def test_no_mail_server_and_no_admins(tmp_path: Path) -> None:
    found = judge(config(tmp_path, channels=["mail"], smtp_port=1))
    assert found["mail server"].verdict is FAILED
    assert "127.0.0.1" in found["mail server"].what
    assert found["admins"].verdict is WARNING


def test_webhook(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    url = "https://user:pass@hub.example/T0KEN"
    settings = config(tmp_path, channels=["webhook"], webhook=url, webhook_secret=str(secret))
    found = judge(settings)
    assert (found["webhook"].verdict, found["webhook secret"].verdict) == (OK, OK)
    assert found["webhook"].what == "https://hub.example"
    secret.chmod(0o644)
    check = judge(settings)["webhook secret"]
    assert check.verdict is FAILED
    assert f"{secret} is 0644" in check.what
    plain = replace(settings.notice, webhook="http://hub.example/", webhook_secret="")
    found = judge(replace(settings, notice=plain))
    assert (found["webhook"].verdict, found["webhook secret"].verdict) == (WARNING, OK)


def test_hooks(tmp_path: Path) -> None:
    settings = config(tmp_path, channels=["hook"])
    assert judge(settings)["hooks"].verdict is FAILED
    folder = tmp_path / "hooks"
    folder.mkdir()
    assert judge(settings)["hooks"].verdict is FAILED
    for name, mode in (("10-chat", 0o755), ("20-open", 0o777), ("30-mail.sh", 0o755)):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(mode)
    (folder / "40-plain").write_text("")
    found = notices.judge(Controller(), settings, channels())
    assert [(c.verdict, c.what.partition(":")[0]) for c in found if c.name == "hooks"] == [
        (OK, "10-chat"), (FAILED, "20-open"), (WARNING, "30-mail.sh"), (WARNING, "40-plain"),
    ]  # fmt: skip


def test_texts(tmp_path: Path) -> None:
    settings = config(tmp_path)
    assert judge(settings)["texts"].verdict is OK
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/warning.txt").write_text("Subject: $jbo\n\nx\n")
    check = judge(settings)["texts"]
    assert check.verdict is WARNING
    assert "did you mean $job?" in check.what


@pytest.mark.skipif(os.geteuid() != 0, reason="root is told otherwise")
def test_elsewhere_only_the_configuration_is_judged(tmp_path: Path) -> None:
    class Login(Controller):
        def exists(self, path: str) -> bool:
            return False

    class User(Controller):
        uid = 1000

    for host in (Login(), User()):
        found = judge(config(tmp_path, channels=["mail"], smtp_port=1), host)
        assert {name: check.verdict for name, check in found.items()} == {
            "channels": OK, "each channel": Verdict.NOT_CHECKED,
        }  # fmt: skip
