"""Connections that nobody uses are closed: who may not ask anything may still open them."""

from __future__ import annotations

import asyncio

import pytest

from slurm_reclaim.adapters.transport import http, server
from tests.parts.transport.test_http import Place


@pytest.mark.parametrize("sent", [b"", b"GET /v1/x/7 HTTP/1.1\r\nHost: a\r\nX-Half: "])
async def test_a_connection_without_a_request_is_closed(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "IDLE_FOR", 0.3)
    place = Place()
    runner = await place.serve()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    finally:
        await runner.cleanup()


def test_our_own_are_given_up_before() -> None:
    assert http.KEPT_FOR < server.IDLE_FOR / 2
