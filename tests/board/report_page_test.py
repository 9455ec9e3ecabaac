# SPDX-License-Identifier: Apache-2.0
"""report.html: one file that needs no server, shows the numbers of the run, and asks for nothing."""
import json
import os
import subprocess
from decimal import Decimal

import board_rig
from board_rig import PageTest
from page_scripts import LONG_NUMBERS
from page_test import LOSS, MARKUP
from rich_run import write_rich_run


class Reports(PageTest):
    def test_the_report_of_a_run_opens_from_a_file_with_the_digits_of_the_run(self):
        run = write_rich_run(self.folder("run"), name=MARKUP, seed=3)
        path = self.folder("report.html")
        subprocess.run([board_rig.PROGRAM, "report", run, "--out", path], check=True, capture_output=True)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line, parse_float=str, parse_int=str) for line in file]
        written = {int(line["step"]): line for line in lines if line["kind"] == "train"}
        browser = self.browser
        browser.reset(height=6000)
        browser.open_page(f"file://{path}#from=20&to=30")
        browser.wait_for("document.querySelector('#learning .chart').dataset.plot")
        browser.js("document.querySelector('#learning button[title*=table]').click()")
        rows = browser.wait_for("""[...document.querySelectorAll('#learning tbody tr')].map((row) =>
            [...row.cells].map((cell) => cell.textContent))""")
        shown = {int(row[0]): row[1] for row in rows}
        self.assertEqual(sorted(step for step in shown if 20 <= step <= 30), list(range(20, 31)))
        for step, value in shown.items():
            self.assertEqual(Decimal(value), Decimal(written[step][LOSS]))
        for kind in ("tokens", "time"):
            browser.js("[...document.querySelectorAll('#toolbar button')].find((one) => one.textContent === arguments[0]).click()",
                       kind)
            browser.wait_for("document.getElementById('range').textContent.includes(arguments[0])",
                             "tokens" if kind == "tokens" else "UTC")
        browser.wait_for("document.querySelector('#ranks canvas')?.width > 0")
        self.assertEqual(browser.js("return document.querySelectorAll('h1').length"), 1)
        count, found = browser.js(LONG_NUMBERS)
        self.assertEqual(found, [])
        self.assertGreater(count, 100)
        self.assertIsNone(browser.js("return window.hacked ?? null"))
        self.assertEqual(browser.js("return [...document.querySelectorAll('.failed')].map((one) => one.textContent)"), [])
        self.expect_quiet("file://")
        print(f"report of {len(written)} steps: {os.path.getsize(path) / 1024:.0f} KiB")


if __name__ == "__main__":
    board_rig.main()
