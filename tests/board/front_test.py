# SPDX-License-Identifier: Apache-2.0
"""The front page of the board: search, order, groups, links, runs that begin, and times over many runs."""
import json
import os
import random
import time
import unittest

import board_rig
import webdriver
from board_rig import Board, PageTest
from many_runs import config_of, write_many, write_many_run
from page_scripts import BOXES, CONTRAST
from page_test import overlaps
from run_folder import metric_line

LOSS = "loss_metrics/global_avg_loss"
NAMES = "[...document.querySelectorAll('.runs tbody .col-name a')].map((one) => one.textContent)"
SEARCH = """
const box = document.getElementById('search');
box.value = arguments[0];
box.dispatchEvent(new Event('input'));
"""
PRESS = "[...document.querySelectorAll(arguments[0])].find((one) => one.textContent.trim().startsWith(arguments[1])).click()"


class Front(PageTest):
    runs = 24  # six of each model

    def make_runs(self, count=None):
        return write_many(self.folder("runs"), count or self.runs, 300, usual=120)

    def names(self):
        return self.browser.js(f"return {NAMES}")

    def wait_for_names(self, condition, *arguments):
        return self.browser.wait_for(f"((names) => {condition})({NAMES}) && {NAMES}", *arguments)

    def test_the_table_shows_what_the_files_say_and_is_searched_sorted_and_grouped(self):
        runs = self.make_runs()
        browser = self.browser
        with Board(runs) as board:
            browser.open_page(board.url)
            browser.wait_for(f"{NAMES}.length === {self.runs}")
            shown = browser.js("""return Object.fromEntries([...document.querySelectorAll('.runs tbody tr')].map((row) =>
                [row.querySelector('a').textContent, Object.fromEntries([...row.querySelectorAll('td')].map((cell) =>
                    [cell.className.split(' ')[0], cell.title || cell.textContent]))]))""")
            source = random.Random(1)
            for number in range(self.runs):
                with open(os.path.join(runs, f"run-{number:03d}", "metrics.jsonl"), encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                train = [line for line in lines if line["kind"] == "train"][-1]
                row = shown[config_of(number, source)["job"]["name"]]
                self.assertEqual(float(row["col-loss"]), train[LOSS])
                self.assertEqual(float(row["col-validation"]), lines[-1]["validation_metrics/loss"])
                self.assertEqual(float(row["col-speed"]), train["throughput(tps)"])
                self.assertEqual(float(row["col-mfu"]), train["mfu(%)"])
                steps = f"{train['step']:,}"
                self.assertEqual(row["col-step"], f"{steps} of {steps}")
                self.assertTrue(row["col-sentence"])
            self.assertEqual(browser.js("return document.querySelectorAll('.runs .spark polyline').length"), self.runs)
            browser.wait_for("document.querySelectorAll('select[title=\"group by\"] option').length > 4")
            browser.js(SEARCH, "gpt2")
            self.assertEqual(len(self.wait_for_names("names.every((one) => one.startsWith('gpt2'))")), 6)
            browser.js(SEARCH, "optimizer.name=muon lr<0.0005")
            found = sorted(self.wait_for_names("names.length > 0 && names.length < 24"))
            source = random.Random(1)
            configs = [config_of(number, source) for number in range(self.runs)]
            wanted = [one["job"]["name"] for one in configs if one["optimizer"]["name"] == "Muon" and one["optimizer"]["lr"] < 0.0005]
            self.assertEqual(found, sorted(wanted))
            browser.js(SEARCH, "long")
            self.wait_for_names("names.length === 3")
            self.assertEqual(browser.js("return [...document.querySelectorAll('.runs tbody tr')].map((row) => "
                                        "[...row.querySelectorAll('.tag')].map((one) => one.textContent).join('|'))"), ["baseline|long"] * 3)
            browser.js(SEARCH, "typo.key=3")
            browser.wait_for("document.querySelector('.front .failed').textContent.startsWith('typo.key')")
            browser.js(SEARCH, "")
            self.wait_for_names("names.length === 24")
            browser.js(PRESS, ".runs thead button", "loss")
            browser.wait_for("document.querySelector('[aria-sort=ascending]')")
            losses = browser.js("return [...document.querySelectorAll('.runs td.col-loss')].map((one) => Number(one.title))")
            self.assertEqual(losses, sorted(losses))
            browser.js(PRESS, ".runs thead button", "loss")
            browser.wait_for("document.querySelector('[aria-sort=descending]')")
            losses = browser.js("return [...document.querySelectorAll('.runs td.col-loss')].map((one) => Number(one.title))")
            self.assertEqual(losses, sorted(losses, reverse=True))
            browser.js("""const list = document.querySelector('select[title="group by"]');
                list.value = 'optimizer.name';
                list.dispatchEvent(new Event('change'));""")
            browser.wait_for("document.querySelectorAll('.group-row').length === 2")
            groups = browser.js("return [...document.querySelectorAll('.group-row')].map((one) => one.textContent)")
            self.assertTrue(any("Muon 8 runs" in one for one in groups), groups)
            browser.js(PRESS, ".group-row button", "▾ Muon")
            self.wait_for_names("names.length === 16")
            self.expect_quiet(board.origin)

    def test_a_link_restores_the_page_and_the_browser_goes_back(self):
        browser = self.browser
        with Board(self.make_runs(8)) as board:
            browser.open_page(board.url)
            browser.wait_for(f"{NAMES}.length === 8")
            browser.js(SEARCH, "kjv")
            browser.js(PRESS, ".runs thead button", "loss")
            listed = self.wait_for_names("names.every((one) => one.startsWith('kjv'))")
            link = browser.js("return location.hash")
            browser.js("document.querySelector('.runs tbody a').click()")
            browser.wait_for("document.querySelector('#learning canvas') && document.querySelector('h1.unseen').textContent === "
                             "arguments[0]", listed[0])
            self.assertIn("run=run-", browser.js("return location.hash"))
            browser.js("history.back()")
            self.wait_for_names("names.join() === arguments[0]", ",".join(listed))
            self.assertEqual(browser.js("return location.hash"), link)
            browser.js("history.forward()")
            browser.wait_for("!document.getElementById('board').hidden")
            browser.js(PRESS, "#toolbar button", "runs")
            self.wait_for_names("names.join() === arguments[0]", ",".join(listed))
            browser.open("about:blank")
            browser.open_page(f"{board.origin}/{link}")
            self.wait_for_names("names.join() === arguments[0]", ",".join(listed))
            self.assertEqual(browser.js("return document.getElementById('search').value"), "kjv")
            browser.open("about:blank")
            browser.open_page(f"{board.origin}/#run=nothing")
            browser.wait_for("document.getElementById('failure').textContent.includes('no run nothing')")
            self.expect_quiet(board.origin)

    def expect_new_runs(self, runs):
        """A run that begins, and a step of it, appear in the table and in /metrics."""
        browser = self.browser
        browser.js("document.querySelector('.runs tbody a').focus(); window.kept = document.activeElement")
        new = os.path.join(runs, "zz-new")
        write_many_run(new, 77, 1, random.Random(3), has_config=False)
        self.wait_for_names("names.length === 7 && names.includes('zz-new')")
        scrape = browser.js("return fetch('/metrics').then((answer) => answer.text())")
        self.assertIn("zz-new", scrape)
        with open(os.path.join(new, "metrics.jsonl"), "a", encoding="utf-8") as out:
            out.write(metric_line(2, {LOSS: 1.25}))
        browser.wait_for("[...document.querySelectorAll('.runs td.col-loss')].some((one) => one.textContent === '1.2500')")
        self.assertTrue(browser.js("return document.activeElement === window.kept"), "an update took the focus away")

    def steps_of(self, runs, name):
        with open(os.path.join(runs, f"run-{name[-3:]}", "run.json"), encoding="utf-8") as file:
            return json.load(file)["training"]["steps"]

    def test_new_runs_appear_and_chosen_runs_are_compared(self):
        browser = self.browser
        runs = self.make_runs(6)
        with Board(runs, options=("--open-metrics",)) as board:
            browser.open_page(board.url)
            browser.wait_for(f"{NAMES}.length === 6")
            self.expect_new_runs(runs)
            self.assertTrue(browser.js("return [...document.querySelectorAll('.front-tools button')].at(-2).disabled"))
            browser.js(SEARCH, "lr>0")
            self.wait_for_names("names.length === 6")
            chosen = browser.js("""const boxes = [...document.querySelectorAll('.runs input')].slice(0, 3);
                for (const box of boxes) box.click();
                return boxes.map((box) => box.getAttribute('aria-label').slice('compare '.length));""")
            browser.js(PRESS, ".front-tools button", "compare 3")
            browser.wait_for("document.querySelectorAll('#learning .legend .item').length === 6")
            legend = browser.js("return [...document.querySelectorAll('#learning .legend .name')].map((one) => one.textContent)")
            self.assertEqual(sorted(legend), sorted(chosen + [f"{name}, validation" for name in chosen]))
            differing = browser.wait_for("[...document.querySelectorAll('#difference tbody tr')].map((row) => "
                                         "[...row.cells].map((cell) => cell.textContent))")
            source = random.Random(1)
            configs = {config["job"]["name"]: config for config in (config_of(number, source) for number in range(6))}
            self.assertIn(["optimizer.lr", *(str(configs[name]["optimizer"]["lr"]) for name in chosen)], differing)
            browser.js("document.querySelector('#stability .enlarge').click()")
            browser.wait_for("document.querySelector('#stability.large .chart').dataset.plot?.split(' ')[2] > 1000")
            self.assertIn("panel=stability", browser.js("return location.hash"))
            browser.js("history.back()")
            browser.wait_for("!document.querySelector('.large')")
            browser.press("s")
            browser.wait_for("location.hash.includes('to=')")
            shortest = min(self.steps_of(runs, name) for name in chosen)
            self.assertEqual(browser.js("return import('/app/view.js').then((page) => page.shownRange())"), [1, shortest])
            self.assertEqual(browser.js("return new URLSearchParams(location.hash.slice(1)).getAll('compare').length"), 2)
            self.expect_quiet(board.origin)

    def test_layout_contrast_and_keyboard_at_every_width(self):
        browser = self.browser
        with Board(self.make_runs(4)) as board:
            browser.open_page(board.url)
            browser.wait_for(f"{NAMES}.length === 4")
            browser.js("document.querySelector('.runs input').click()")
            for width, dark in ((400, True), (400, False), (1280, True), (2560, False)):
                with self.subTest(width=width, dark=dark):
                    browser.resize(width, 1600)
                    browser.set_dark(dark)
                    browser.js("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
                    groups, page_width, window_width = browser.js(BOXES)
                    self.assertEqual([pair for group in groups for pair in overlaps(group)], [])
                    self.assertLessEqual(page_width, window_width)
                    self.assertEqual(browser.js(CONTRAST)[1], [])
            browser.resize(1280, 1600)
            wanted = browser.js("""
                return [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
                    .filter((node) => node.getClientRects().length > 0 && !node.disabled).length""")
            browser.js("document.activeElement.blur(); window.order = []; document.addEventListener('focusin', (event) => "
                       "window.order.push(event.target))")
            for _ in range(wanted + 2):
                browser.press("\ue004")
            self.assertGreaterEqual(browser.js("return new Set(window.order).size"), wanted)
            browser.js("document.activeElement.blur()")
            browser.press("/")
            self.assertEqual(browser.js("return document.activeElement.id"), "search")


@unittest.skipUnless(board_rig.IS_FULL, "times are measured with TRIREME_FULL=1")
class Speed(PageTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(webdriver.Browser(has_logs=False))

    def test_times_of_the_list(self):
        """Times over 500 runs are printed; nothing is asserted about them."""
        count, longest = 500, 1_000_000
        runs = write_many(self.folder("runs"), count, longest)
        browser = self.browser
        after_frame = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
        with Board(runs, options=("--no-cache",)) as board:
            first, paints = [], []
            for _ in range(5):
                browser.open("about:blank")
                browser.open_page(board.url)
                paints.append(browser.wait_for("performance.getEntriesByName('runs-painted')[0]?.startTime"))
                first.append(browser.wait_for("performance.getEntriesByName('first-contentful-paint')[0]?.startTime"))
            browser.wait_for("document.querySelectorAll('select[title=\"group by\"] option').length > 4")
            browser.wait_for("document.querySelectorAll('.runs tbody tr').length >= 30")
            acts = {"search": "box.value = ['gpt2', 'loss<2.5', 'sweep 3', ''][i % 4]; box.dispatchEvent(new Event('input'));",
                    "sort": "document.querySelectorAll('.runs thead button')[2 + i % 5].click();",
                    "group": "const list = document.querySelector('select[title=\"group by\"]'); list.value = i % 2 ? '' : "
                             "'optimizer.lr'; list.dispatchEvent(new Event('change'));"}
            times = {name: sorted(browser.js(f"""return (async () => {{
                const box = document.getElementById('search');
                const times = [];
                for (let i = 0; i < 12; ++i) {{
                  const begin = performance.now();
                  {act}
                  {after_frame}
                  times.push(performance.now() - begin);
                }}
                return times;
              }})()""")) for name, act in acts.items()}
            browser.js("location.hash = '#page=runs'")
            delays = []
            for number in range(5):
                browser.js("""window.seen = 0; const name = arguments[0];
                    const look = () => {
                      if ([...document.querySelectorAll('.runs tbody a')].some((one) => one.textContent.endsWith(name))) {
                        requestAnimationFrame(() => { window.seen = Date.now(); });
                      } else {
                        requestAnimationFrame(look);
                      }
                    };
                    look();""", f"-{900 + number}")
                write_many_run(os.path.join(runs, f"new-{number}"), 900 + number, 1, random.Random(number), start=time.time() - 1000)
                written = time.time()
                delays.append(browser.wait_for("window.seen") / 1000 - written)
            print(f"{count} runs, the longest of {longest} steps: first paint median {sorted(first)[2]:.0f} ms, largest "
                  f"{max(first):.0f} ms; table painted median {sorted(paints)[2]:.0f} ms, largest {max(paints):.0f} ms; " + ", ".join(f"{name} median {all[6]:.0f} ms, largest {all[-1]:.0f} ms"
                                                        for name, all in times.items()) +
                  f"; a new run on screen {sorted(delays)[2]:.2f} s after its first step, at most {max(delays):.2f} s")


if __name__ == "__main__":
    board_rig.main()
