# SPDX-License-Identifier: Apache-2.0
"""Drives headless Chromium through chromedriver by plain HTTP (the WebDriver protocol)."""
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


def missing_programs():
    """Names of the programs that these tests need and that are not installed."""
    chromium = [name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)]
    missing = [] if chromium else ["chromium"]
    return missing if shutil.which("chromedriver") else missing + ["chromedriver (Debian: chromium-driver)"]


class Browser:
    """One browser with one window; use as a context."""

    def __init__(self, width=1280, height=900, dark=False, has_logs=True):
        self.driver = None
        self.session = None
        self.profile = tempfile.mkdtemp(prefix="board-browser-")
        self.size = (width, height)
        self.dark = dark
        self.has_logs = has_logs  # of requests and console; they make pages slower

    def __enter__(self):
        log = os.path.join(self.profile, "driver.log")
        self.driver = subprocess.Popen(["chromedriver", "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, start_new_session=True)
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.root = f"http://127.0.0.1:{line.split('port')[1].strip().rstrip('.')}"
                break
        width, height = self.size
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--force-device-scale-factor=1", "--disable-background-networking", "--disable-component-update",
                     "--disable-extensions", "--no-first-run", f"--user-data-dir={self.profile}/data",
                     f"--window-size={width},{height}", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        wanted = {"goog:chromeOptions": {"args": arguments}}
        if self.has_logs:
            wanted["goog:loggingPrefs"] = {"browser": "ALL", "performance": "ALL"}
        self.session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self.reset(width, height, self.dark)
        return self

    def reset(self, width=1280, height=900, dark=False):
        """An empty page of this size, and empty logs."""
        self.open("about:blank")
        self.resize(width, height)
        self.set_dark(dark)
        if self.has_logs:
            self.console()
            self.requests()

    def __exit__(self, *_):
        try:
            if self.session:
                self.send("DELETE", f"/session/{self.session}")
        finally:
            os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait()
            self.driver.stdout.close()
            shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, method=method, data=data,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def call(self, method, path, body=None):
        return self.send(method, f"/session/{self.session}{path}", body)

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def set_dark(self, dark):
        value = "dark" if dark else "light"
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def js(self, code, *arguments):
        """Runs the body of a function; a promise that it returns is awaited."""
        return self.call("POST", "/execute/sync", {"script": code, "args": list(arguments)})

    def wait_for(self, code, *arguments, seconds=20):
        """Waits until the expression is true, and returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.js(f"return ({code});", *arguments)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not true after {seconds} s: {code}")
            time.sleep(0.02)

    def open_page(self, url):
        self.open(url)
        self.wait_for("document.documentElement.dataset.ready")

    def console(self):
        """Messages of the console since the last call, without those of level INFO."""
        found = self.call("POST", "/se/log", {"type": "browser"})
        return [f"{one['level']} {one['message']}" for one in found if one["level"] not in ("INFO", "DEBUG")]

    def requests(self):
        """Addresses that the browser asked for since the last call."""
        found = []
        for one in self.call("POST", "/se/log", {"type": "performance"}):
            message = json.loads(one["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                found.append(parameters.get("request", parameters)["url"])
        return found

    def press(self, key):
        """Presses a key; special keys are those of the WebDriver protocol (Tab: U+E004)."""
        keys = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def drag(self, begin, end):
        """Presses the mouse at one point, moves it to another and releases it; points are (x, y) of the window."""
        def move(point):
            return {"type": "pointerMove", "duration": 0, "x": round(point[0]), "y": round(point[1])}
        middle = [(a + b) / 2 for a, b in zip(begin, end)]
        steps = [move(begin), {"type": "pointerDown", "button": 0}, move(middle), move(end), {"type": "pointerUp", "button": 0}]
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": steps,
                                                    "parameters": {"pointerType": "mouse"}}]})

    def screenshot(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.call("GET", "/screenshot")))
