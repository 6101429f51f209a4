"""post.py SMTP_PORT HTTP_PORT FILE [refuse]: a mail server and a web server that write down what
they take, one JSON object a line. `refuse`: no recipient is known to the mail server."""

import asyncio
import json
import sys

SMTP, HTTP, FILE, *MODE = sys.argv[1:]


def put(**what):
    with open(FILE, "a") as file:
        file.write(json.dumps(what) + "\n")


async def mail(reader, writer):
    def say(text):
        writer.write(text.encode() + b"\r\n")

    to = []
    say("220 post")
    while line := (await reader.readline()).decode("utf-8", "replace").strip():
        verb = line.upper()
        if verb.startswith("RCPT"):
            to.append(line.partition("<")[2].partition(">")[0])
            say("550 no such user" if MODE else "250 good")
        elif verb == "DATA":
            say("354 go on")
            body = await reader.readuntil(b"\r\n.\r\n")
            put(by="mail", to=to, body=body.decode())
            say("250 taken")
        elif verb == "QUIT":
            say("221 bye")
            break
        else:
            say("250 good")
    writer.close()


async def web(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    put(by="webhook", **json.loads(await reader.readexactly(int(fields["content-length"]))))
    writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


async def main():
    servers = [await asyncio.start_server(*each) for each in
               ((mail, "127.0.0.1", SMTP), (web, "127.0.0.1", HTTP))]  # fmt: skip
    await asyncio.gather(*(server.serve_forever() for server in servers))


asyncio.run(main())
