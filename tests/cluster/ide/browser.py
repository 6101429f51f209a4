"""A person's browser at a VS Code server: browser.py URL PROFILE. Chromium without a window, driven
by its own debugging protocol over a pipe.

Reads one JSON object a line and answers each with one: {"do": "terminal"} opens a terminal,
{"do": "type", "text": ...} types a line into it, {"do": "screen", "path": ...} writes what is seen
as PNG.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--window-size=1000,700", "--remote-debugging-pipe",
]  # fmt: skip
CONTROL, SHIFT = 2, 8
ANSWERED = 120.0  # seconds within which the browser answers


class Browser:
    def __init__(self, url: str, profile: str) -> None:
        # Chromium reads commands from descriptor 3 and answers on 4, each ended by a zero byte.
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()

        def descriptors() -> None:
            # Above what is replaced first: the two may overlap.
            got, put = os.dup(there_read), os.dup(there_write)
            got, put = [_above(each) for each in (got, put)]
            os.dup2(got, 3)
            os.dup2(put, 4)

        self._process = subprocess.Popen(
            [
                "chromium",
                *FLAGS,
                # As behind a site's proxy with TLS: without it pages may do less.
                f"--unsafely-treat-insecure-origin-as-secure={url}",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=descriptors,
        )
        os.close(there_read)
        os.close(there_write)
        self._in, self._out, self._buffer = here_read, here_write, b""
        self._number, self._session = 0, ""
        pages = self._call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in pages if each["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")  # so that its dialogs are told
        self._call("Page.navigate", url=url)

    def _call(self, method: str, **parameters: object) -> dict:
        number = self._send(method, parameters)
        deadline = time.monotonic() + ANSWERED
        while True:
            said = self._next(deadline, method)
            if said.get("method") == "Page.javascriptDialogOpening":
                # "Leave site?", while a terminal is there.
                self._send("Page.handleJavaScriptDialog", {"accept": True})
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]

    def _send(self, method: str, parameters: dict) -> int:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        return self._number

    def _next(self, deadline: float, waiting_for: str) -> dict:
        """An answer or an event."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RuntimeError(f"the browser does not answer {waiting_for}")
            more = os.read(self._in, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _value(self, expression: str) -> object:
        said = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return said["result"].get("value")

    def _wait(self, expression: str, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not self._value(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not seen within {seconds:g} s: {expression}")
            time.sleep(0.5)

    def _key(self, key: str, code: str, number: int, modifiers: int = 0) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code,
                windowsVirtualKeyCode=number, modifiers=modifiers,
            )  # fmt: skip

    def terminal(self) -> None:
        self._wait("!!document.querySelector('.monaco-workbench .part.statusbar')")
        time.sleep(3)  # its key bindings come a little later
        self._key("`", "Backquote", 192, CONTROL | SHIFT)
        self._wait("!!document.querySelector('.terminal-wrapper .xterm-helper-textarea')")

    def type(self, text: str) -> None:
        self._value("document.querySelector('.xterm-helper-textarea').focus()")
        self._call("Input.insertText", text=text)
        self._call(
            "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter",
            windowsVirtualKeyCode=13, text="\r",
        )  # fmt: skip
        self._call(
            "Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter",
            windowsVirtualKeyCode=13,
        )  # fmt: skip

    def screen(self, path: str) -> None:
        shot = self._call("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _above(descriptor: int) -> int:
    while descriptor <= 4:
        descriptor = os.dup(descriptor)
    return descriptor


def main() -> None:
    browser = Browser(sys.argv[1], sys.argv[2])
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                answer = {"said": getattr(browser, asked.pop("do"))(**asked)}
            except RuntimeError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
