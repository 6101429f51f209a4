from __future__ import annotations

import asyncio
import socket

import pytest

from slurm_reclaim.adapters.notify import mail
from slurm_reclaim.model.notice import Channel, NoticeKind

from .conftest import Make, deliver, notice, server_context

HOSTILE = [
    "alice\nBcc: eve@evil.example", "alice,eve@evil.example", "alice@evil.example", "a b", "",
    "alice>", '"alice"', "-alice", "alice\r\nRCPT TO:<eve@evil.example>", "älice", "a\udcff",
    "eve@evil.example, alice", "<eve@evil.example>", "alice;eve", "a" * 300 + "\n",
]  # fmt: skip


async def test_the_owner_gets_a_mail(make: Make, post_office) -> None:
    office = await post_office()
    config = make(channels=["mail"], smtp_port=office.port)
    (done,) = await deliver(config)
    assert (done.channel, done.ok, done.to) == (Channel.MAIL, True, "alice@example.org")
    assert done.at > 0
    assert office.recipients == [["alice@example.org"]]
    assert office.senders == ["slurm@example.org"]
    (seen,) = office.mails
    assert seen["From"] == "Slurm <slurm@example.org>"
    assert seen["To"] == "alice@example.org"
    assert seen["Message-ID"] == "<0123456789abcdef@example.org>"
    assert seen["References"] == "<lab.12.2001@example.org>"
    assert seen["Auto-Submitted"] == "auto-generated"
    assert seen["Subject"].startswith("Session 12 will be hibernated in ")
    assert seen.get_content_type() == "text/plain"
    assert seen.get_content_charset() == "utf-8"
    assert "reclaim keep 12" in seen.get_content()


async def test_a_second_try_has_the_same_message_id(make: Make, post_office) -> None:
    office = await post_office()
    config = make(channels=["mail"], smtp_port=office.port)
    await deliver(config)
    await deliver(config)
    await deliver(config, notice(id="lab/12 é"))
    ids = [seen["Message-ID"] for seen in office.mails]
    assert ids[0] == ids[1] != ids[2]
    assert ids[2].isascii()
    assert " " not in ids[2]


@pytest.mark.parametrize("user", HOSTILE)
async def test_a_user_name_adds_no_header_and_no_recipient(
    make: Make, post_office, user: str
) -> None:
    office = await post_office()
    (done,) = await deliver(
        make(channels=["mail"], smtp_port=office.port, mail_to="{user}"), notice(user=user)
    )
    assert not done.ok
    assert "can't be part of an address" in done.error
    assert done.error.isprintable()
    assert office.recipients == []


async def test_hostile_names_stay_in_the_body(make: Make, post_office) -> None:
    office = await post_office()
    name = "x\r\nBcc: eve@evil.example\r\n\r\n.\r\nQUIT\x1b[2J\udcff\x00" + "y" * 300
    config = make(channels=["mail"], smtp_port=office.port)
    (done,) = await deliver(config, notice(job_name=name, reason=name, job=name, node=name))
    assert done.ok
    (seen,) = office.mails
    assert office.recipients == [["alice@example.org"]]
    assert seen["Bcc"] is None
    assert b"\x1b" not in office.raw[0]
    assert b"\x00" not in office.raw[0]
    assert b"\nBcc:" not in office.raw[0].replace(b"\r", b"")
    assert set(seen.keys()) <= {
        "From", "To", "Subject", "Date", "Message-ID", "References", "Auto-Submitted",
        "X-Auto-Response-Suppress", "X-Reclaim-Notice", "Content-Type", "MIME-Version",
        "Content-Transfer-Encoding", "X-Peer", "X-MailFrom", "X-RcptTo",
    }  # fmt: skip


async def test_unicode_arrives_as_it_is(make: Make, post_office) -> None:
    office = await post_office()
    config = make(channels=["mail"], smtp_port=office.port)
    await deliver(config, notice(job_name="Größe 日本"))
    assert "Größe 日本" in office.mails[0].get_content()
    assert office.raw[0].isascii()


async def test_a_local_name_needs_no_domain(make: Make, post_office) -> None:
    office = await post_office()
    config = make(channels=["mail"], smtp_port=office.port, mail_to="{user}")
    (done,) = await deliver(config)
    assert done.ok
    assert office.recipients == [["alice"]]
    assert office.mails[0]["To"] == "alice"


async def test_the_brake_is_told_to_the_admins(make: Make, post_office) -> None:
    refused = "550 5.1.1 no such user"
    office = await post_office(refuse={"gone@example.org": refused})
    admins = ["ops@example.org", "gone@example.org"]
    brake = notice(kind=NoticeKind.BRAKE, user="", job="", job_id=0, uid=-1)
    config = make(channels=["mail"], smtp_port=office.port, admins=admins)
    found = await deliver(config, brake)
    assert [(d.to, d.ok, d.error) for d in found] == [
        ("ops@example.org", True, ""), ("gone@example.org", False, refused),
    ]  # fmt: skip
    assert "hibernates nothing" in office.mails[0]["Subject"]
    (nobody,) = await deliver(make(channels=["mail"], smtp_port=office.port), brake)
    assert (nobody.ok, nobody.error) == (False, "notice.admins names nobody")


@pytest.mark.parametrize("answer", ["550 5.1.1 no such user", "451 4.3.0 come back later"])
async def test_a_refused_recipient_is_told_in_the_servers_words(
    make: Make, post_office, answer: str
) -> None:
    office = await post_office(refuse={"alice@example.org": answer})
    (done,) = await deliver(make(channels=["mail"], smtp_port=office.port))
    assert (done.ok, done.to, done.error) == (False, "alice@example.org", answer)


@pytest.mark.parametrize("answer", ["554 5.7.1 it looks like spam", "452 4.3.1 disk is full"])
async def test_a_refused_mail_is_told_in_the_servers_words(
    make: Make, post_office, answer: str
) -> None:
    office = await post_office(data_answer=answer)
    (done,) = await deliver(make(channels=["mail"], smtp_port=office.port))
    assert (done.ok, done.error) == (False, answer)
    assert office.mails == []


async def test_no_server(make: Make) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        (done,) = await deliver(make(channels=["mail"], smtp_port=port))
    assert not done.ok
    assert f"127.0.0.1:{port}" in done.error


async def silent(reader, writer) -> None:
    await asyncio.sleep(60)


async def dribbling(reader, writer) -> None:
    """Never long enough without a byte for a limit on single reads."""
    while True:
        writer.write(b"220-wait\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("server", [silent, dribbling])
async def test_a_slow_server_is_given_up(make: Make, port, server) -> None:
    number = await port(server)
    begin = asyncio.get_running_loop().time()
    (done,) = await deliver(make(channels=["mail"], smtp_port=number, timeout=1.0))
    assert asyncio.get_running_loop().time() - begin < 30
    assert (done.ok, done.error) == (False, f"127.0.0.1:{number} did not answer within 1 s")


async def test_the_time_is_for_the_whole_talk(make: Make, port) -> None:
    """A server that needs most of it for every answer does not get it for every answer."""

    async def slow(reader, writer) -> None:
        await asyncio.sleep(0.7)
        writer.write(b"220 x\r\n")
        while line := await reader.readline():
            await asyncio.sleep(0.7)
            writer.write(b"354 go\r\n" if line.startswith(b"DATA") else b"250 ok\r\n")

    number = await port(slow)
    (done,) = await deliver(make(channels=["mail"], smtp_port=number, timeout=1.0))
    assert (done.ok, done.error) == (False, f"127.0.0.1:{number} did not answer within 1 s")


async def test_a_server_that_hangs_after_it_took_the_mail_has_taken_it(make: Make, port) -> None:
    async def half(reader, writer) -> None:
        writer.write(b"220 x\r\n")
        data = False
        while line := await reader.readline():
            if data:
                if line == b".\r\n":
                    data = False
                    writer.write(b"250 taken\r\n")
            elif line.startswith(b"QUIT"):
                await asyncio.sleep(60)
            elif line.startswith(b"DATA"):
                data = True
                writer.write(b"354 go\r\n")
            else:
                writer.write(b"250 ok\r\n")

    (done,) = await deliver(make(channels=["mail"], smtp_port=await port(half)))
    assert done.ok


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_encrypted(make: Make, post_office, authority, tls: str) -> None:
    office = await post_office(tls, server_context(authority, "127.0.0.1"))
    (done,) = await deliver(make(channels=["mail"], smtp_port=office.port, smtp_tls=tls))
    assert (done.ok, done.error) == (True, "")
    assert office.encrypted == [True]


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_the_servers_certificate_is_verified(
    make: Make, post_office, authority, tls: str
) -> None:
    office = await post_office(tls, server_context(authority, "other.example"))
    (done,) = await deliver(make(channels=["mail"], smtp_port=office.port, smtp_tls=tls))
    assert not done.ok
    assert "certificate" in done.error
    assert office.mails == []


async def test_starttls_is_no_wish(make: Make, post_office) -> None:
    office = await post_office()
    (done,) = await deliver(make(channels=["mail"], smtp_port=office.port, smtp_tls="starttls"))
    assert not done.ok
    assert office.mails == []


async def test_greeting(make: Make, post_office, port) -> None:
    office = await post_office()
    assert "mail.test" in await mail.greet(make(smtp_port=office.port).notice)
    with pytest.raises(ValueError, match="did not answer within 1 s"):
        await mail.greet(make(smtp_port=await port(silent), timeout=1.0).notice)
