# SPDX-License-Identifier: Apache-2.0
"""Accessibility of every page by the rules of axe-core: no serious and no critical finding, light and dark, at every width.

Skipped where the npm package axe-core is missing: `npm install axe-core` in the source tree, or TRIREME_AXE=path/to/axe.min.js."""
import os
import subprocess
import sys

import board_rig
from board_rig import Board, PageTest
from many_runs import write_many
from page_test import EVENTS, PREDICTION, noisy
from run_folder import write_run

RULES = """
return axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations
    .filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.help}: ` + one.nodes.slice(0, 4).map((node) => node.html.slice(0, 160)).join(' | ')));
"""
SIZES = [(width, dark) for width in (400, 1280, 2560) for dark in (False, True)]


def axe_file():
    given = os.environ.get("TRIREME_AXE")
    if given:
        return given if os.path.isfile(given) else None
    folder = os.path.dirname(os.path.abspath(__file__))
    while True:
        found = os.path.join(folder, "node_modules", "axe-core", "axe.min.js")
        if os.path.isfile(found):
            return found
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)


class Rules(PageTest):
    def check(self, name, sizes):
        browser = self.browser
        for width, dark in sizes:
            with self.subTest(page=name, width=width, dark=dark):
                browser.resize(width, 1400)
                browser.set_dark(dark)
                browser.js("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
                if not browser.js("return Boolean(window.axe)"):
                    with open(axe_file(), encoding="utf-8") as file:
                        browser.js(file.read() + "\nwindow.axe = window.axe || axe;")
                self.assertEqual(browser.js(RULES), [])
        # The rules do run: a planted fault is found.
        browser.js("document.querySelector('main:not([hidden])').append(document.createElement('button'))")
        self.assertEqual([one.split(":")[0] for one in browser.js(RULES)], ["button-name"])

    def test_every_page_in_light_and_dark_at_every_width(self):
        runs = write_many(self.folder("runs"), 6, 300, usual=60)
        whole = write_run(os.path.join(runs, "whole"), name="whole", values=noisy(1), events=EVENTS, ranks=16,
                          prediction=PREDICTION)
        report = self.folder("report.html")
        subprocess.run([board_rig.PROGRAM, "report", whole, "--out", report], check=True, capture_output=True)
        browser = self.browser
        with Board(runs, options=("--plan",)) as board:
            browser.open_page(board.url)
            pages = [("list", "/#page=runs&compare=run-000&order=loss&group=optimizer.name", "document.querySelector('.runs .spark')"),
                     ("run", "/#run=whole", "document.querySelector('#learning canvas')"),
                     ("comparison", "/#run=run-000&compare=run-001", "document.querySelector('#difference td')"),
                     ("planner", "/#page=plan", "document.querySelector('#planner form')"),
                     ("report", f"file://{report}", "document.querySelector('#learning canvas')")]
            for i, (name, address, shown) in enumerate(pages):
                browser.open("about:blank")
                browser.open_page(address if address.startswith("file:") else board.origin + address)
                browser.wait_for(shown)
                # Pages share their parts: without TRIREME_FULL each is checked once.
                self.check(name, SIZES if board_rig.IS_FULL else [SIZES[i]])


if __name__ == "__main__":
    if axe_file() is None:
        print("skipped: the npm package axe-core is not installed (TRIREME_AXE names axe.min.js)")
        sys.exit(board_rig.SKIPPED)
    board_rig.main()
