"""Mail by SMTP.

aiosmtplib rather than smtplib in a thread: a server that dribbles its answers keeps each single
read of smtplib within its time and the thread for ever; here one bound holds for the whole talk
and ends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import format_datetime, localtime, parseaddr
from typing import TypeVar

import aiosmtplib

from slurm_reclaim.adapters.notify.texts import Text
from slurm_reclaim.config.schema import Config, Notices
from slurm_reclaim.model.notice import TO_ADMINS, Channel, Delivery, Notice
from slurm_reclaim.model.printable import line

Said = TypeVar("Said")

# Python breaks a long subject right after its name, which some readers show as a leading space.
_HEADERS = WIRE.clone(max_line_length=900)

# What a user name may hold to become part of an address. Narrower than RFC 5322: what is left out
# (spaces, quotes, commas, @, <>) is what adds recipients.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")
_ID = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
GOODBYE = 1.0  # seconds that a server has for it once it took the mail


async def send(config: Config, notice: Notice, text: Text) -> list[Delivery]:
    """One mail; a Delivery for each who should get it."""
    settings = config.notice
    try:
        wanted = recipients(settings, notice)
        refused = await _talk(settings, wanted, compose(settings, notice, text, wanted))
        words = ""
    except aiosmtplib.SMTPRecipientsRefused as error:
        refused = {each.recipient: f"{each.code} {each.message}" for each in error.recipients}
        words = ""
    except ValueError as error:
        return [_delivery(str(error))]
    except (aiosmtplib.SMTPException, asyncio.TimeoutError, OSError) as error:
        refused, words = {}, _words(error, settings)
    return [_delivery(refused.get(address, words), address) for address in wanted]


def _delivery(error: str, to: str = "") -> Delivery:
    return Delivery(Channel.MAIL, ok=not error, to=to, error=line(error, 300), at=time.time())


def recipients(settings: Notices, notice: Notice) -> list[str]:
    """Addresses: the admins for what is theirs, else the owner. Raises ValueError."""
    if notice.kind in TO_ADMINS:
        if not settings.admins:
            raise ValueError("notice.admins names nobody")
        return [_address(admin) for admin in dict.fromkeys(settings.admins)]
    if _PLAIN_NAME.fullmatch(notice.user) is None:
        raise ValueError(f"the user name {line(notice.user, 40)!r} can't be part of an address")
    return [_address(settings.mail_to.replace("{user}", notice.user))]


def _address(text: str) -> str:
    if _ADDRESS.fullmatch(text) is None:
        raise ValueError(f"{line(text, 80)!r} is no mail address")
    return text


def sender(settings: Notices) -> tuple[str, str]:
    """(name, address) of notice.mail_from. Raises ValueError."""
    name, address = parseaddr(settings.mail_from)
    return line(name), _address(address)


def compose(settings: Notices, notice: Notice, text: Text, to: list[str]) -> EmailMessage:
    """The mail. The same notice has the same Message-ID however often it is sent, and those of one
    job refer to a common one, so that mail readers show them together. Raises ValueError."""
    name, address = sender(settings)
    domain = address.partition("@")[2] or "localhost"
    mail = EmailMessage(policy=WIRE)
    mail["From"] = _mailbox(address, name)
    mail["To"] = [_mailbox(each) for each in to]
    mail["Subject"] = text.subject
    mail["Date"] = format_datetime(localtime())
    mail["Message-ID"] = f"<{_id_part(notice.id)}@{domain}>"
    if notice.job_id:
        thread = _id_part(f"{notice.cluster}.{notice.job_id}.{notice.uid}")
        mail["References"] = f"<{thread}@{domain}>"
    # RFC 3834: no out-of-office answers; the second is what Exchange listens to.
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail["X-Reclaim-Notice"] = notice.kind.value
    mail.set_content(text.body, charset="utf-8", cte="quoted-printable")
    return mail


def _mailbox(address: str, name: str = "") -> Address:
    user, _, domain = address.partition("@")
    return Address(display_name=name, username=user, domain=domain)


def _id_part(text: str) -> str:
    """`text` where it can stand left of the @, else a digest of it."""
    if _ID.fullmatch(text) and len(text) <= 100:
        return text
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


async def _talk(settings: Notices, to: list[str], mail: EmailMessage) -> dict[str, str]:
    """Who was refused, in the server's words; the others it took. Raises as aiosmtplib does,
    SMTPRecipientsRefused where it took none."""

    async def hand_over(client: aiosmtplib.SMTP) -> dict[str, str]:
        refused, _ = await client.sendmail(sender(settings)[1], to, mail.as_bytes(policy=_HEADERS))
        return {who: f"{said.code} {said.message}" for who, said in refused.items()}

    return await _connected(settings, hand_over)


async def greet(settings: Notices) -> str:
    """Talk to the server up to where a mail would begin, TLS included; its answer to EHLO. Raises
    ValueError with what it or the system said."""

    async def say_hello(client: aiosmtplib.SMTP) -> str:
        return line((await client.ehlo()).message, 80)

    try:
        return await _connected(settings, say_hello)
    except (aiosmtplib.SMTPException, asyncio.TimeoutError, OSError) as error:
        raise ValueError(_words(error, settings)) from None


async def _connected(settings: Notices, talk: Callable[[aiosmtplib.SMTP], Awaitable[Said]]) -> Said:
    client = _client(settings)

    async def bounded() -> Said:
        await client.connect()
        return await talk(client)

    try:
        said = await asyncio.wait_for(bounded(), settings.timeout)
        # What was to be said is said: whatever happens now changes nothing.
        with suppress(aiosmtplib.SMTPException, OSError, asyncio.TimeoutError):
            await asyncio.wait_for(client.quit(), GOODBYE)
        return said
    finally:
        client.close()


def _client(settings: Notices) -> aiosmtplib.SMTP:
    encrypted = settings.smtp_tls != "none"
    return aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=settings.smtp_port,
        use_tls=settings.smtp_tls == "tls",
        start_tls=settings.smtp_tls == "starttls",
        tls_context=ssl.create_default_context() if encrypted else None,
        timeout=settings.timeout,
        # Else it asks the name server for our name, and waits for that.
        local_hostname=socket.gethostname(),
    )


def _words(error: BaseException, settings: Notices) -> str:
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return f"{error.code} {error.message}"
    where = f"{settings.smtp_host}:{settings.smtp_port}"
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return f"{where} did not answer within {settings.timeout:g} s"
    return f"{where}: {error or type(error).__name__}"
