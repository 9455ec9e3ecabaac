# SPDX-License-Identifier: Apache-2.0
"""The pages of the board in a browser: what they load, what they show, how they are laid out."""
import json
import os
import random
import re
from decimal import Decimal

import board_rig
from board_rig import Board, PageTest
from page_scripts import BOXES, CHECK_BUCKETS, COLUMN_PIXELS, CONTRAST
from rich_run import write_rich_run
from run_folder import START, write_run

LOSS = "loss_metrics/global_avg_loss"
MARKUP = '<img src=x onerror="window.hacked = 1">\'"><b>\u2028\u202e& </script>'

PREDICTION = {"machine": "h100", "why": "", "seconds": 1.0, "band": 0.1, "terms": None, "stage_seconds": None,
              "memory": {"limit_bytes": 8 << 30, "items": {"params": 1 << 30, "stash": 2 << 30}, "total_bytes": 3 << 30},
              "model_flops": 1e12, "hardware_flops": 1.1e12, "peak_flops": 1e13, "peak_source": "a file", "ranks": 16,
              "tokens_per_step": 4096, "seq_len": 64, "mfu_formula": "6 N", "price_per_hour": 2.5, "recompute": "none"}


def event(step, kind, text, severity="info", **more):
    return {"time": START + step, "step": step, "attempt": 1, "epoch": 1, "kind": kind, "severity": severity, "text": text,
            **more}


def noisy(seed):
    source = random.Random(seed)

    def values(step):
        return {LOSS: 2 + 5 / step + source.gauss(0, 0.05), "loss_metrics/min": 1.8 + 5 / step,
                "loss_metrics/max": 2.3 + 5 / step, "grad_norm": abs(source.gauss(1, 0.1)), "clip_limit": 1.0,
                "update_norm": 0.01, "tokens": step * 4096, "lr": 3e-05 * source.random(),
                "throughput(tps)": 4096 + source.gauss(0, 30)}
    return values


EVENTS = [event(1, "start", "attempt 1 starts on 16 ranks"), event(120, "spike", "loss is 9 deviations high", "warning"),
          event(150, "verdict", "rank 3 does not answer", "error", rank=3, node="node-0")]

# Every row of panels reaches both edges of its grid.
NO_HOLES = """[...document.querySelectorAll('.grid')].every((grid) => {
  const width = grid.clientWidth - 2 * parseFloat(getComputedStyle(grid).paddingLeft);
  const rows = new Map();
  for (const panel of grid.children) {
    if (panel.hidden) continue;
    const box = panel.getBoundingClientRect();
    const row = rows.get(Math.round(box.top)) || [];
    rows.set(Math.round(box.top), [...row, box]);
  }
  return rows.size > 0 && [...rows.values()].every((boxes) =>
      Math.abs(Math.max(...boxes.map((box) => box.right)) - Math.min(...boxes.map((box) => box.left)) - width) < 1.5 &&
      Math.abs(boxes.reduce((sum, box) => sum + box.width + 12, -12) - width) < 14);
})"""


def overlaps(boxes):
    found = []
    for i, (name, left, top, right, bottom) in enumerate(boxes):
        for other, left2, top2, right2, bottom2 in boxes[i + 1:]:
            if min(right, right2) - max(left, left2) > 0.5 and min(bottom, bottom2) - max(top, top2) > 0.5:
                found.append((name, other))
    return found


class Pages(PageTest):
    def make_run(self, folder="run", **more):
        given = {"values": noisy(1), "events": EVENTS, "ranks": 16, "prediction": PREDICTION}
        return write_run(self.folder(folder), **{**given, **more})

    def test_the_skip_link_moves_the_focus_and_keeps_the_page(self):
        browser = self.browser
        runs = [self.make_run("one", name="one"), self.make_run("two", name="two")]
        with Board(*runs, options=("--plan",)) as board:
            browser.open_page(board.url)
            for fragment, text, focused, title in (("#run=1", "to the charts", "first", "two: "),
                                                   ("#page=plan", "to the form", "question", "Trireme planner")):
                browser.open("about:blank")
                browser.open_page(f"{board.origin}/{fragment}")
                browser.wait_for("document.title.startsWith(arguments[0])", title)
                browser.wait_for("document.querySelector(arguments[0])", "#planner form" if "plan" in fragment else "#first *")
                browser.press("\ue004")  # Tab
                self.assertEqual(browser.js("return document.activeElement.textContent"), text)
                browser.press("\ue007")  # Enter
                self.assertIn(focused, browser.js("return document.activeElement.id + ' ' + document.activeElement.className"))
                self.assertEqual(browser.js("return location.hash"), fragment)
                shown = "[...document.querySelectorAll('h1')].filter((one) => one.getClientRects().length > 0).length"
                self.assertEqual(browser.js(f"return {shown}"), 1)
            self.expect_quiet(board.origin)

    def test_every_panel_is_shown_without_errors_and_without_requests_elsewhere(self):
        browser = self.browser
        browser.reset(height=6000)
        run = write_rich_run(self.folder("rich"), steps=160)
        with Board(run) as board:
            browser.open_page(board.url)
            browser.wait_for("document.querySelectorAll('#ranks canvas').length > 0 && "
                             "document.querySelector('#checkpoints .body').childNodes.length > 0 && "
                             "document.querySelector('#ledger .body').childNodes.length > 0")
            self.assertGreaterEqual(browser.js("return document.querySelectorAll('.panel').length"), 15)
            self.assertEqual(browser.js("return [...document.querySelectorAll('.failed')].map((n) => n.textContent)"), [])
            self.expect_quiet(board.origin)
            self.assertEqual(browser.js("return document.cookie"), "", "the token's cookie is readable by scripts")
            self.assertNotIn("token", browser.js("return location.href"))
            self.assertEqual(browser.js("return [...document.querySelectorAll('.panel')].filter((one) => one.hidden && one.dataset.empty).length"), 0)
            self.expect_rich_content(run)

    def expect_rich_content(self, run):
        """Phases, data sets and experts are those of the files."""
        browser = self.browser
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            written = {line["step"]: line for line in map(json.loads, file) if line["kind"] == "train"}
        browser.wait_for("document.querySelectorAll('#experts dd').length === 4")
        marks = "return import('/app/phases.js').then((phases) => phases.phaseMarks().map((mark) => [mark.label, mark.x]))"
        self.assertEqual(browser.js(marks), [["long texts", 81], ["phase 3", 151]])
        legend = "[...document.querySelectorAll('#learning .legend .name')].map((one) => one.textContent)"
        self.assertEqual(browser.js(f"return {legend}"), ["training", "validation", "web", "books"])
        last = browser.js("return [...document.querySelectorAll('#experts dl div')].map((one) => Number(one.title))")
        names = ["expert_max_over_mean", "idle_experts", "dropped", "entropy"]
        self.assertEqual(last, [written[160][f"experts/{name}"] for name in names])
        browser.js("document.querySelector('#experts button[title*=table]').click()")
        table = "[...document.querySelectorAll('#experts tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
        rows = browser.wait_for(f"{table}.length === 4 * 160 && {table}")
        for block, step, value in rows:
            tag = f"experts/{block.replace(' ', '_')}/expert_max_over_mean"
            self.assertEqual(float(value), written[int(step)][tag])
        browser.js("""const list = document.querySelector('#experts select');
            list.value = 'busiest';
            list.dispatchEvent(new Event('change'));
            document.querySelector('#experts button[title*=table]').click()""")
        largest = max(written[step]["experts/block_2/expert_max_over_mean"] for step in written)
        shown = browser.wait_for("""(() => {
            const canvas = document.querySelector('#experts canvas');
            const box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 50 + (box.width - 58) * 2.5 / 5,
              clientY: box.top + 24}));
            const {textContent} = document.querySelector('#experts .readout');
            return textContent.includes('expert 2') && textContent;
        })()""")
        self.assertEqual(shown, f"block 2, expert 2: {float(f'{largest:.3g}'):g} ×")

    def test_panels_without_data_are_one_line_and_rows_have_no_holes(self):
        browser = self.browser
        with Board(write_run(self.folder("bare"), steps=20), write_rich_run(self.folder("rich"), steps=20)) as board:
            hidden = "[...document.querySelectorAll('.panel[hidden]')].filter((one) => one.dataset.empty).map((one) => one.id).sort().join(' ')"
            for run, wanted in ((0, "collectives data experts hardware layers ledger memory numerics pipeline ranks"), (1, "")):
                browser.reset(1280, 6000)
                browser.open_page(f"{board.url}#run={run}")
                browser.wait_for(f"{hidden} === arguments[0]", wanted)
                line = browser.js("return document.querySelector('.missing').innerText")
                self.assertEqual(len(line.split(" · ")), len(wanted.split()) or 1, line)
                for width in (400, 800, 1280, 2560):
                    with self.subTest(run=run, width=width):
                        browser.resize(width, 6000)
                        browser.wait_for(NO_HOLES, seconds=5)

    def test_layout_contrast_and_keyboard_at_every_width(self):
        browser = self.browser
        browser.reset(height=1200)
        with Board(self.make_run()) as board:
            browser.open_page(board.url)
            browser.wait_for("document.querySelector('#learning canvas')")
            for width in (400, 1280, 2560):
                for dark in (False, True):
                    with self.subTest(width=width, dark=dark):
                        browser.resize(width, 6000)
                        browser.set_dark(dark)
                        browser.js("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
                        groups, page_width, window_width = browser.js(BOXES)
                        self.assertEqual([pair for group in groups for pair in overlaps(group)], [])
                        self.assertLessEqual(page_width, window_width)
                        count, low = browser.js(CONTRAST)
                        self.assertGreater(count, 40)
                        self.assertEqual(low, [])
            browser.resize(1280, 6000)
            reached = []
            wanted = browser.js("""
                return [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
                    .filter((node) => node.getClientRects().length > 0 && !node.disabled).length""")
            # Places in the page: panels may be drawn again meanwhile, and the focus then moves to the new node.
            browser.js("document.body.focus(); window.order = []; document.addEventListener('focusin', (event) => "
                       "window.order.push([...document.querySelectorAll('*')].indexOf(event.target)))")
            for _ in range(wanted + 2):
                browser.press("\ue004")
            reached = browser.js("return new Set(window.order).size")
            self.assertGreaterEqual(reached, wanted)
            follows = browser.js("return window.order.slice(0, arguments[0] - 1).every((node, i) => i === 0 || "
                                 "window.order[i - 1] <= node)", wanted)
            self.assertTrue(follows, "Tab moves against the order of the page")

    def test_keys_change_the_range_and_the_fragment_restores_it(self):
        browser = self.browser
        with Board(self.make_run()) as board:
            browser.open_page(board.url)
            browser.wait_for("document.querySelector('#learning canvas')")
            browser.press("+")
            browser.wait_for("location.hash.includes('from=') && location.hash.includes('to=')")
            browser.press("\ue014")
            moved = browser.js("return location.hash")
            browser.press("?")
            self.assertIn(self.documented_letters(), browser.wait_for("document.querySelector('dialog[open]')?.textContent"))
            browser.press("\ue00c")
            shown = browser.js("return document.getElementById('range').textContent")
            browser.open_page(board.origin + "/" + moved)
            browser.wait_for("document.getElementById('range').textContent === arguments[0]", shown)
            browser.press("0")
            browser.wait_for("!location.hash.includes('from=')")
            self.expect_quiet(board.origin)

    def test_the_mouse_zooms_reads_values_and_opens_ranks(self):
        browser = self.browser
        browser.reset(height=2600)
        with Board(self.make_run()) as board:
            browser.open_page(board.url)
            browser.wait_for("document.querySelector('#learning .chart').dataset.plot")
            plot = browser.js("""
                const chart = document.querySelector('#learning .chart');
                const box = chart.getBoundingClientRect();
                const [left, top, width, height] = chart.dataset.plot.split(' ').map(Number);
                return [box.left + left, box.top + top, width, height];""")
            at = lambda share: (plot[0] + share * plot[2], plot[1] + plot[3] / 2)
            browser.drag(at(0.25), at(0.75))
            browser.wait_for("location.hash.includes('from=') && location.hash.includes('to=')")
            view = browser.js("return import('/app/view.js').then((page) => page.shownRange())")
            self.assertAlmostEqual(view[0], 1 + 0.25 * 199, delta=1)
            self.assertAlmostEqual(view[1], 1 + 0.75 * 199, delta=1)
            self.assertIn("step", browser.js("return document.getElementById('range').textContent"))
            cell = browser.wait_for("""(() => {
                const canvas = document.querySelector('#ranks canvas');
                const box = canvas.getBoundingClientRect();
                return box.height > 40 && [box.left + box.width / 2, box.top + 5.5 * (box.height - 18) / 16];
            })()""")
            browser.drag(cell, cell)
            browser.wait_for("location.hash.includes('rank=5')")
            browser.wait_for("document.querySelector('#ranks h3')?.textContent.includes('rank 5 on node-0')")
            browser.wait_for("document.querySelectorAll('#ranks .columns div').length === 3")
            self.expect_quiet(board.origin)

    def documented_letters(self):
        """The letters of events as the documentation lists them, which are all of them."""
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        with open(os.path.join(root, "docs", "observability.md"), encoding="utf-8") as file:
            line = next(line for line in file if line.startswith("- Letters over vertical lines are events: "))
        documented = line.split(": ", 1)[1].strip().rstrip(".")
        with open(os.path.join(root, "src", "board", "assets", "runinfo.js"), encoding="utf-8") as file:
            letters = re.findall(r"\w+: '(.)'", re.search(r"const marked = \{(.*?)\};", file.read(), re.DOTALL)[1])
        self.assertEqual(sorted(part.split()[0] for part in documented.split(", ")), sorted(letters))
        return documented

    def test_buckets_hold_every_point_once_and_labels_and_spans_fit(self):
        with Board(self.make_run()) as board:
            self.browser.open_page(board.url)
            self.assertEqual(self.browser.js(CHECK_BUCKETS), [])
            wrong = self.browser.js("""
                return Promise.all([import('/app/heat.js'), import('/app/grid.js')]).then(([heat, grid]) => {
                  const wrong = [];
                  for (let cols = 1; cols < 200; ++cols) {
                    const steps = Array.from({length: cols}, (_, i) => [20 * i + 1, 20 * i + 20]);
                    const labels = heat.stepLabels(steps, 6).map((one) => one.label);
                    if (labels.length < Math.min(cols, 3) || labels.length > 6 || new Set(labels).size !== labels.length) wrong.push(cols);
                  }
                  for (let columns = 1; columns < 7; ++columns) {
                    for (let code = 0; code < 243; ++code) {
                      const wishes = [0, 1, 2, 3, 4].map((i) => [1, 2, Infinity][Math.floor(code / 3 ** i) % 3]);
                      const spans = grid.spansOf(wishes, columns);
                      let row = 0;
                      for (const span of spans) row = row + span > columns ? NaN : (row + span) % columns;
                      if (row !== 0 || spans.length !== 5) wrong.push([wishes, columns, spans]);
                    }
                  }
                  return wrong;
                })""")
            self.assertEqual(wrong, [])

    def test_hostile_names_are_shown_as_text(self):
        long = MARKUP + "x" * 10000
        tag = f"custom/{MARKUP}"
        events = [event(10, "alert", long, "error", node=MARKUP, device=MARKUP, evidence=[MARKUP])]
        run = self.make_run("bad", name=long, events=events, values=lambda step: {LOSS: 2.0, tag: step})
        other = self.make_run("good")
        browser = self.browser
        browser.reset(width=400, height=6000)
        with Board(run, other) as board:
            for fragment, shown in (("", ".runs .spark"), ("#compare=1", "#learning canvas"),
                                    ("#run=good&compare=bad", "#learning canvas")):
                browser.open("about:blank")
                browser.open_page(board.url + fragment)
                browser.wait_for("document.querySelector(arguments[0])", shown)
                self.assertIsNone(browser.js("return window.hacked ?? null"))
                self.assertEqual(browser.js("return document.querySelectorAll('img, iframe, b').length"), 0)
                self.assertLessEqual(browser.js("return document.documentElement.scrollWidth"), 400)
            browser.open("about:blank")
            browser.open_page(board.url + "#run=bad")
            for where, text in (("#events", long), ("#metric", tag), ("#top", long)):
                found = browser.wait_for(f"document.querySelector('{where}')?.textContent")
                self.assertIn(text.split("\u2028")[0], found, where)
            self.expect_quiet(board.origin)

    def test_tooltips_tables_and_csv_have_the_digits_of_the_file(self):
        run = self.make_run(steps=150)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line, parse_float=str, parse_int=str) for line in file]
        written = {int(line["step"]): line for line in lines if line["kind"] == "train"}
        browser = self.browser
        browser.reset(height=6000)
        with Board(run) as board:
            browser.open_page(board.url + "#tag=lr")
            browser.wait_for("document.querySelector('#learning canvas')")
            for panel, tag in (("learning", LOSS), ("stability", "grad_norm"), ("metric", "lr")):
                for step in (1, 77, 150):
                    shown = browser.js("""
                        const [panel, step] = arguments;
                        return import('/app/view.js').then((page) => {
                          page.setCursor(step);
                          const value = document.querySelector(`#${panel} .legend .value`);
                          return [value.textContent, value.title];
                        })""", panel, step)
                    short, exact = shown[0].split(" (")[0].replace("−", "-"), shown[1].split(": ")[0].split(" (")[0]
                    self.assertEqual(Decimal(exact), Decimal(written[step][tag]), f"{tag} at step {step}")
                    self.assertEqual(Decimal(short), Decimal(f"{Decimal(exact):.4e}"), f"{tag} at step {step}")
            browser.js("document.querySelector('#learning button[title*=table]').click()")
            rows = browser.wait_for("""[...document.querySelectorAll('#learning tbody tr')].map((row) =>
                [...row.cells].map((cell) => cell.textContent))""")
            self.assertEqual(len(rows), 150)
            for step, value, *_ in rows:
                self.assertEqual(Decimal(value), Decimal(written[int(step)][LOSS]))
            link = browser.js("return document.querySelector('#learning .chart-table a').href")
            text = browser.js("return fetch(arguments[0]).then((answer) => answer.text())", link)
            csv = [line.split(",") for line in text.strip().split("\n")]
            self.assertEqual(csv[0], ["step", "time", "value"])
            self.assertEqual([row[2] for row in csv[1:]], [written[step][LOSS] for step in sorted(written)])

    def test_points_that_are_not_finite_are_marked_and_gaps_stay_gaps(self):
        def values(step):
            if 80 <= step < 120:
                return {"tokens": step * 4096}
            return {LOSS: float("nan") if step == 40 else 2.0 + step / 1000, "tokens": step * 4096}
        browser = self.browser
        with Board(self.make_run(values=values)) as board:
            browser.open_page(board.url)
            browser.wait_for("document.querySelector('#learning .chart').dataset.plot")
            colored = browser.js(COLUMN_PIXELS, "learning", [40 / 199, 100 / 199, 150 / 199])
            marks, gap, line = colored
            self.assertGreater(marks["red"], 4, "the point that is not finite has no mark")
            self.assertEqual(gap["blue"], 0, "a line is drawn where there are no points")
            self.assertGreater(line["blue"], 0)


if __name__ == "__main__":
    board_rig.main()
