# SPDX-License-Identifier: Apache-2.0
"""Every page of the board in Firefox: it draws, and the console has no error. Skipped without Firefox."""
import os
import shutil
import sys
import tempfile
import unittest

import board_rig
from board_rig import Board
from firefox import Firefox, firefox_program
from many_runs import write_many
from page_test import EVENTS, PREDICTION, noisy
from run_folder import write_run


class Pages(unittest.TestCase):
    def test_every_page_draws_without_errors(self):
        scratch = tempfile.mkdtemp(prefix="board-test-")
        self.addCleanup(shutil.rmtree, scratch, ignore_errors=True)
        runs = write_many(os.path.join(scratch, "runs"), 6, 300, usual=60)
        write_run(os.path.join(runs, "whole"), name="whole", values=noisy(1), events=EVENTS, ranks=16, prediction=PREDICTION)
        names = "[...document.querySelectorAll('.runs tbody .col-name a')].map((one) => one.textContent)"
        with Board(runs, options=("--plan",)) as board, Firefox() as browser:
            browser.open(board.url)
            browser.wait_for(f"{names}.length === 7")
            browser.js("(() => { const box = document.getElementById('search'); box.value = 'gpt2 loss<100'; "
                       "box.dispatchEvent(new Event('input')); })()")
            browser.wait_for(f"{names}.length === 2")
            browser.js("document.querySelector('.runs thead button').click()")
            browser.js("document.querySelector('.runs tbody a').click()")
            browser.wait_for("document.querySelector('#learning canvas')")
            browser.js("history.back()")
            browser.wait_for(f"!document.getElementById('front').hidden && {names}.length === 2")
            for width, fragment, shown in ((400, "#page=runs&group=state", ".group-row"), (1280, "#run=whole", "#ranks canvas"),
                                           (1280, "#run=run-000&compare=run-001", "#difference td"),
                                           (400, "#page=plan", "#planner form")):
                browser.resize(width, 3000)
                browser.open("about:blank")
                browser.open(f"{board.origin}/{fragment}")
                browser.wait_for(f"document.querySelector('{shown}')")
                self.assertEqual(browser.js("[...document.querySelectorAll('.failed')].map((one) => one.textContent).filter(Boolean)"), [])
                self.assertLessEqual(browser.js("document.documentElement.scrollWidth"), width)
            self.assertEqual(browser.console(), [])
            # The console is read: what a page reports there is found.
            browser.js("console.error('planted')")
            self.assertEqual(browser.console(), ["error planted"])


if __name__ == "__main__":
    if firefox_program() is None:
        print("skipped: firefox-esr is not installed")
        sys.exit(board_rig.SKIPPED)
    board_rig.main(needs_chromium=False)
