"""Real servers on loopback: SMTP (aiosmtpd), HTTP (aiohttp), and certificates for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
from aiosmtpd.smtp import SMTP, Envelope, Session

from slurm_reclaim.adapters.notify.notices import Notices
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.notice import Delivery, Notice, NoticeKind

Make = Callable[..., Config]


def notice(**changes: Any) -> Notice:
    values: dict[str, Any] = {
        "id": "0123456789abcdef", "kind": NoticeKind.WARNING, "cluster": "lab", "job": "12",
        "job_id": 12, "job_name": "notebook", "user": "alice", "uid": 2001, "node": "n1",
        "reason": "nothing was seen for 45m", "deadline": 4e9, "idle": 2700.0, "vram": 38 << 30,
    }  # fmt: skip
    return Notice(**{**values, **changes})


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A configuration whose [notice] is as given."""

    def configured(**changes: Any) -> Config:
        values = {
            "texts": str(tmp_path / "notices"),
            "hooks": str(tmp_path / "hooks"),
            "timeout": 2.0,
            "smtp_host": "127.0.0.1",
            "channels": [],
            "mail_to": "{user}@example.org",
            "mail_from": "Slurm <slurm@example.org>",
        }
        config = Config()
        config = replace(config, controller=replace(config.controller, user="root"))
        return replace(config, notice=replace(config.notice, **{**values, **changes}))

    return configured


async def deliver(config: Config, what: Notice | None = None) -> list[Delivery]:
    return list(await Notices(lambda: config).deliver(what or notice()))


@dataclass
class PostOffice:
    """Keeps what it takes; `refuse` maps a recipient to what is answered to its RCPT."""

    refuse: dict[str, str] = field(default_factory=dict)
    data_answer: str = "250 taken"
    mails: list[Message] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    port: int = 0

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.data_answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            self.raw.append(envelope.content)
            self.mails.append(message_from_bytes(envelope.content, policy=default))
            self.senders.append(envelope.mail_from or "")
            self.recipients.append(list(envelope.rcpt_tos))
            self.encrypted.append(session.ssl is not None or getattr(server, "implicit", False))
        return self.data_answer


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """A certificate authority that this host trusts."""
    made = trustme.CA()
    path = tmp_path / "authority.pem"
    made.cert_pem.write_to_path(str(path))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return made


def server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


Open = Callable[..., Awaitable[PostOffice]]


@pytest_asyncio.fixture
async def post_office():
    """Opens SMTP servers: `tls` is "", "starttls" or "tls"."""
    servers = []

    async def opened(tls: str = "", context: ssl.SSLContext | None = None, **more: Any):
        office = PostOffice(**more)

        def protocol() -> SMTP:
            made = SMTP(
                office,
                hostname="mail.test",
                tls_context=context if tls == "starttls" else None,
                require_starttls=tls == "starttls",
            )
            made.implicit = tls == "tls"
            return made

        server = await asyncio.get_running_loop().create_server(
            protocol, "127.0.0.1", 0, ssl=context if tls == "tls" else None
        )
        servers.append(server)
        office.port = server.sockets[0].getsockname()[1]
        return office

    yield opened
    for server in servers:
        server.close()


@pytest_asyncio.fixture
async def port():
    """Opens a TCP server that does with each connection what it is told; gives its port."""
    servers = []

    async def opened(talk: Callable[..., Awaitable[None]]) -> int:
        async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(quietly, "127.0.0.1", 0)
        servers.append(server)
        return server.sockets[0].getsockname()[1]

    yield opened
    for server in servers:
        server.close()
