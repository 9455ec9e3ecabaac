# SPDX-License-Identifier: Apache-2.0
"""Starts `trireme board` for tests of its pages. Exit code 77 means skipped, with the reason."""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import webdriver

SKIPPED = 77
PROGRAM = None
# While pages are written: TRIREME_ASSETS=src/board/assets serves them without a build.
ASSETS = ["--assets", os.environ["TRIREME_ASSETS"]] if os.environ.get("TRIREME_ASSETS") else []
IS_FULL = os.environ.get("TRIREME_FULL", "") not in ("", "0")


class Board:
    """A server over folders of runs; use as a context."""

    def __init__(self, *folders, options=()):
        self.command = [PROGRAM, "board", *folders, "--json", *options, *ASSETS]
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)}: {self.process.stderr.read()}")
        self.url = json.loads(line)["url"]
        self.origin = "/".join(self.url.split("/")[:3])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=20)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class PageTest(unittest.TestCase):
    """A scratch folder, one browser for all tests of a class, and checks that every page must pass."""

    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(webdriver.Browser())

    def setUp(self):
        self.browser.reset()
        self.scratch = tempfile.mkdtemp(prefix="board-test-")
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def folder(self, name):
        return os.path.join(self.scratch, name)

    def expect_quiet(self, origin):
        """No message in the console (errors, refused by the content policy), no request elsewhere."""
        self.assertEqual(self.browser.console(), [])
        elsewhere = [url for url in self.browser.requests() if not url.startswith((origin, "data:", "blob:"))]
        self.assertEqual(elsewhere, [])


def main(needs_chromium=True):
    """Usage: TEST.py PROGRAM [unittest options]."""
    global PROGRAM
    if len(sys.argv) < 2:
        sys.exit("usage: TEST.py path/to/trireme [options of unittest]")
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    missing = webdriver.missing_programs() if needs_chromium else []
    if missing:
        print(f"skipped: {', '.join(missing)} is not installed")
        sys.exit(SKIPPED)
    answer = subprocess.run([PROGRAM, "board", "--help"], capture_output=True, text=True)
    if answer.returncode != 0:
        print(f"skipped: this build has no board: {answer.stderr.strip()}")
        sys.exit(SKIPPED)
    unittest.main(module="__main__", verbosity=2)
