"""A real browser, without windows: a page is opened, asked with JavaScript, pressed keys in, and taken as a picture.

It is driven over two pipes by the DevTools protocol: one JSON object, and a zero byte, for each message.
"""

import base64
import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import chromium

_ANSWER_S = 60
_OPTIONS = (
    "--headless=shell",
    "--no-sandbox",  # the tests run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--font-render-hinting=none",
    "--hide-scrollbars",
)
_KEYS = {"Tab": 9, "Enter": 13, " ": 32}


class Browser:
    """One browser with one page. asked: URLs of all that the page has asked for. said: what its console said."""

    def __init__(self, process: subprocess.Popen, to: int, back: int):
        self._process, self._to, self._back = process, to, back
        self._number, self._buffer, self._session = 0, b"", None
        self.asked: list[str] = []
        self.said: list[str] = []
        self._loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One call of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        return self._until(lambda said: said.get("id") == self._number, method)

    def open(self, url: str) -> float:
        """Open a page and wait until it is shown. Returns for how many milliseconds."""
        self.asked, self.said, begun, loaded = [], [], time.monotonic(), self._loaded
        failed = self.call("Page.navigate", url=url).get("errorText")
        assert not failed, failed
        if self._loaded == loaded:
            self._until(lambda said: said.get("method") == "Page.loadEventFired", url)
        self.ask("new Promise(shown => requestAnimationFrame(() => requestAnimationFrame(() => shown(1))))")
        return (time.monotonic() - begun) * 1000

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, awaited."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def look(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Of what size the window is, in CSS pixels, and whether its user likes dark pages."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key, as a user presses it."""
        said = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key], "modifiers": 8 if shift else 0}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **said, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **said)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Save what is seen as PNG; the whole page, or the window."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _until(self, is_it: Any, what: str) -> dict[str, Any]:
        end = time.monotonic() + _ANSWER_S
        while time.monotonic() < end:
            head, found, rest = self._buffer.partition(b"\0")
            if not found:
                if select.select([self._back], [], [], 1)[0]:
                    read = os.read(self._back, 1 << 20)
                    assert read, f"the browser is gone: {self._process.poll()}"
                    self._buffer += read
                continue
            self._buffer, said = rest, json.loads(head)
            self._note(said)
            if is_it(said):
                assert "error" not in said, (what, said["error"])
                return said.get("result", said)
        raise AssertionError(f"no answer to {what} in {_ANSWER_S} s")

    def _note(self, said: dict[str, Any]) -> None:
        method, params = said.get("method"), said.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
            self.said.append(json.dumps(params)[:500])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is ended with the block. Raises SetupError where it cannot be had."""
    at = chromium.ensure()
    (read, to), (back, write) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory() as home:
        # The browser reads from descriptor 3 and writes to descriptor 4, so a shell puts the pipes there.
        script = f'exec 3<&{read} 4>&{write}; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", script, "-", str(at / "chromium"), *_OPTIONS, f"--user-data-dir={home}", "about:blank"],
            pass_fds=(read, write),
            env={**os.environ, "LD_LIBRARY_PATH": str(at / "lib"), "HOME": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for ours in (read, write):
                os.close(ours)
            yield Browser(process, to, back)
        finally:
            process.kill()
            process.wait()
            os.close(to)
            os.close(back)
