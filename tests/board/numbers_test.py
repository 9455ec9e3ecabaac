# SPDX-License-Identifier: Apache-2.0
"""No page shows a measured value with more than six significant digits, outside of tooltips and raw tables."""
from urllib.parse import quote

import board_rig
from board_rig import Board, PageTest
from page_scripts import LONG_NUMBERS, NOTE_CANVAS_TEXTS
from rich_run import write_rich_run

PLANTED = ["3.1752952931830625", "77164004608 bytes", "77,164,004,608 bytes", "x: 0.000020154919993728982", "1.2345678e-05s",
           "0.0000010412345 %"]
ALLOWED = ["3.1753", "1,234,567,890 tokens", "2026-11-17 06:52:06 UTC", "0.000020155", "step 41,234,567", "run-20261117-065206",
           "llama-3.1-8b", "8,589,900,000", "128.00 GiB", "127.0.0.1", "12345678abc"]


class Numbers(PageTest):
    def setUp(self):
        super().setUp()
        note = self.browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=NOTE_CANVAS_TEXTS)
        self.addCleanup(lambda: self.browser.devtools("Page.removeScriptToEvaluateOnNewDocument", **note))

    def expect_short(self, at_least):
        count, found = self.browser.js(LONG_NUMBERS)
        self.assertEqual(found, [])
        self.assertGreater(count, at_least)

    def fill(self):
        """Waits until every panel has its content."""
        self.browser.wait_for("document.querySelector('#learning .chart').dataset.plot && document.querySelector('#ledger td') && "
                              "document.querySelector('#hardware td') && document.querySelector('#experts dd') && "
                              "document.querySelector('#ranks canvas').width > 50 && document.querySelector('#data .chart').dataset.plot")

    def test_the_check_finds_long_numbers_and_allows_counts_dates_and_names(self):
        browser = self.browser
        browser.open("data:text/html,<body></body>")
        for texts, wanted in ((PLANTED, len(PLANTED)), (ALLOWED, 0)):
            browser.js("document.body.replaceChildren(...arguments[0].map((text) => "
                       "Object.assign(document.createElement('p'), {textContent: text})))", texts)
            self.assertEqual(len(browser.js(LONG_NUMBERS)[1]), wanted, browser.js(LONG_NUMBERS)[1])
        browser.js("document.body.replaceChildren(document.createElement('canvas')); "
                   "document.querySelector('canvas').getContext('2d').fillText('0.123456789', 5, 5)")
        self.assertEqual([where for *_, where in browser.js(LONG_NUMBERS)[1]], ["canvas"])

    def test_pages_of_runs_and_comparisons(self):
        browser = self.browser
        browser.reset(height=6000)
        runs = [write_rich_run(self.folder("one"), name="one"), write_rich_run(self.folder("two"), name="two", seed=2)]
        with Board(*runs) as board:
            browser.open_page(board.url)
            browser.js("return new Promise((done) => setTimeout(done, 300))")
            self.expect_short(8)
            browser.open_page(f"{board.url}#run=0&rank=5")
            self.fill()
            self.expect_short(150)
            browser.js("return import('/app/view.js').then((page) => page.setCursor(77))")
            self.expect_short(150)
            for speed in ("time_metrics/end_to_end(s)", "mfu(%)", "tflops"):
                browser.js("location.hash = '#run=0&speed=' + encodeURIComponent(arguments[0])", speed)
                browser.wait_for("document.querySelector('#speed .chart').dataset.drawn.startsWith(arguments[0])", speed)
            for fragment in ("#run=0&x=tokens", "#run=0&x=time", "#run=0&compare=1"):
                browser.js("location.hash = arguments[0]", fragment)
                browser.js("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
                self.expect_short(150)
            browser.wait_for("document.querySelectorAll('#learning .legend .item').length === 4")
            self.expect_quiet(board.origin)

    def test_the_planner(self):
        question = "model=llama3.1-8b&machine=h100&gpus=16&batch_tokens=1e6&seq_len=4096&tokens=1e12"
        with Board(options=("--plan",)) as board:
            self.browser.open_page(f"{board.url}#page=plan&plan=" + quote(question))
            self.browser.wait_for("document.querySelectorAll('#plan-answer .panel').length > 2", seconds=60)
            self.expect_short(50)


if __name__ == "__main__":
    board_rig.main()
