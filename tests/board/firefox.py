# SPDX-License-Identifier: Apache-2.0
"""Drives headless Firefox by WebDriver BiDi over its remote port: no other program is needed."""
import base64
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

START_SECONDS = 60


def firefox_program():
    return next((found for name in ("firefox-esr", "firefox") if (found := shutil.which(name))), None)


class WebSocket:
    """A client of RFC 6455 for text messages."""

    def __init__(self, port, path):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            self.bytes += self.stream.recv(4096)
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"no WebSocket: {head.decode()}")

    def take(self, count):
        while len(self.bytes) < count:
            more = self.stream.recv(1 << 16)
            if not more:
                raise RuntimeError("Firefox closed the connection")
            self.bytes += more
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def frame(self, opcode, payload):
        mask = os.urandom(4)
        size = len(payload)
        head = bytes([0x80 | opcode]) + (bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
                                         if size < 1 << 16 else struct.pack("!BQ", 0x80 | 127, size))
        self.stream.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)))

    def send(self, text):
        self.frame(1, text.encode())

    def receive(self):
        text = b""
        while True:
            first, second = self.take(2)
            size = second & 127
            if size >= 126:
                size = int.from_bytes(self.take(2 if size == 126 else 8), "big")
            payload = self.take(size)
            if first & 15 == 9:  # a ping
                self.frame(10, payload)
                continue
            text += payload
            if first & 0x80:
                return text.decode()


class Firefox:
    """One browser with one page; use as a context."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="board-firefox-")
        self.messages = []
        self.number = 0
        self.socket = None
        log = os.path.join(self.profile, "firefox.log")
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([firefox_program(), "--headless", "--no-remote", "--profile", self.profile,
                                             "--remote-debugging-port", "0"], stdout=out, stderr=subprocess.STDOUT,
                                            start_new_session=True, env={**os.environ, "MOZ_DISABLE_CONTENT_SANDBOX": "1"})
        end = time.monotonic() + START_SECONDS
        port = None
        while port is None:
            with open(log, encoding="utf-8", errors="replace") as file:
                text = file.read()
            if "BiDi listening on ws://" in text and text.split("BiDi listening on ws://")[1].count("\n") > 0:
                port = int(text.split("BiDi listening on ws://")[1].split("\n")[0].rsplit(":", 1)[1])
            elif self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"Firefox does not start: {text}")
            else:
                time.sleep(0.05)
        self.socket = WebSocket(port, "/session")
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self.page = self.call("browsingContext.getTree")["contexts"][0]["context"]
        return self

    def __exit__(self, *_):
        if self.socket:
            self.socket.stream.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]
            if message.get("method") == "log.entryAdded":
                self.messages.append(message["params"])

    def open(self, url):
        self.call("browsingContext.navigate", context=self.page, url=url, wait="complete")

    def resize(self, width, height):
        self.call("browsingContext.setViewport", context=self.page, viewport={"width": width, "height": height})

    def js(self, expression):
        """The value of an expression, which may be a promise; true for an element."""
        text = "(value) => JSON.stringify(value instanceof Node ? true : value ?? null)"
        answer = self.call("script.evaluate", expression=f"Promise.resolve({expression}).then({text})",
                           target={"context": self.page}, awaitPromise=True)
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def wait_for(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while not (value := self.js(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"not true after {seconds} s: {expression}")
            time.sleep(0.05)
        return value

    def console(self):
        """Errors and warnings of the console since the last call."""
        self.js("null")  # what was logged before is here now
        found, self.messages = self.messages, []
        return [f"{one['level']} {one['text']}" for one in found if one["level"] in ("error", "warn")]
