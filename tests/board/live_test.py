# SPDX-License-Identifier: Apache-2.0
"""The board while a run writes: delays, incomplete lines, replaced files, a server that comes back, many tabs."""
import json
import os
import signal
import threading
import time

import board_rig
from board_rig import Board, PageTest, free_port
from run_folder import metric_line, write_run

LOSS = "loss_metrics/global_avg_loss"

# Notes when which value of the loss is in the legend, by the clock of the page.
WATCH_LEGEND = """
window.seen = {};
const note = () => {
  const node = document.querySelector('#learning .legend .value');
  const text = node ? node.textContent : '';
  if (text && !(text in window.seen)) window.seen[text] = Date.now();
  requestAnimationFrame(note);
};
note();
"""

COUNT_STREAMS = """
window.streams = 0;
const Source = window.EventSource;
window.EventSource = class extends Source {
  constructor(...given) {
    super(...given);
    ++window.streams;
  }
};
"""


def values(step):
    return {LOSS: 1000 + step, "grad_norm": 1.0, "tokens": step * 4096}


class Live(PageTest):
    def append(self, run, text):
        with open(os.path.join(run, "metrics.jsonl"), "a", encoding="utf-8") as out:
            out.write(text)

    def wait_for_loss(self, step, seconds=20):
        self.browser.wait_for("document.querySelector('#learning .legend .value')?.textContent === arguments[0]",
                              f"{1000 + step:,}", seconds=seconds)

    def test_steps_appear_within_a_second(self):
        run = write_run(self.folder("run"), steps=100, total=1000, values=values)
        written = {}
        with Board(run) as board:
            self.browser.open_page(board.url)
            self.wait_for_loss(100)
            self.browser.js(WATCH_LEGEND)
            self.browser.js("window.kept = document.querySelector('#toolbar select'); window.kept.focus()")

            def write():
                for step in range(101, 251):
                    self.append(run, metric_line(step, values(step)))
                    written[step] = time.time()
                    time.sleep(0.02)  # 50 lines a second
            writer = threading.Thread(target=write)
            writer.start()
            writer.join()
            self.wait_for_loss(250)
            self.assertTrue(self.browser.js("return document.activeElement === window.kept"), "an update took the focus away")
            seen = self.browser.js("return window.seen")
            # A step may be drawn together with later ones: it is visible when the first step that is not earlier is.
            times = sorted((int(float(text.replace(',', ''))) - 1000, at / 1000) for text, at in seen.items() if text[0].isdigit())
            delays = sorted(next(at for shown, at in times if shown >= step) - when for step, when in written.items())
            print(f"from line to pixel: median {delays[len(delays) // 2] * 1000:.0f} ms, "
                  f"largest {delays[-1] * 1000:.0f} ms over {len(delays)} steps at 50 lines/s")
            self.expect_quiet(board.origin)

    def test_runs_that_begin_later_appear_in_the_list(self):
        runs = self.folder("runs")
        write_run(os.path.join(runs, "first"), name="first", steps=20, values=values)
        names = "[...document.querySelectorAll('#toolbar select[title=run] option')].map((one) => one.textContent)"
        with Board(runs) as board:
            self.browser.open_page(board.url)
            self.wait_for_loss(20)
            self.assertEqual(self.browser.js(f"return {names}"), [])  # there is nothing to choose
            write_run(os.path.join(runs, "another"), name="another", steps=30, values=values)
            self.browser.wait_for(f"{names}.join() === 'first,another'")
            self.browser.js("""const list = document.querySelector('#toolbar select[title=run]');
                list.value = '1';
                list.dispatchEvent(new Event('change'));""")
            self.wait_for_loss(30)
            self.assertEqual(self.browser.js("return document.querySelector('h1').textContent"), "another")
            self.expect_quiet(board.origin)

    def test_a_board_without_runs_shows_the_first_that_begins(self):
        runs = self.folder("runs")
        write_run(os.path.join(runs, "ended"), name="ended", steps=20, values=values)
        with Board(runs, options=("--state", "running")) as board:
            self.browser.open_page(board.url)
            self.assertIn("no run yet", self.browser.js("return document.getElementById('top').textContent"))
            run = write_run(os.path.join(runs, "live"), name="live", steps=20, total=100, values=values)
            with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
                machine = file.readline().strip() + " " + os.readlink("/proc/self/ns/pid")
            with open("/proc/self/stat", encoding="utf-8") as file:
                start = int(file.read().rsplit(")", 1)[1].split()[19])
            with open(os.path.join(run, "owner.json"), "w", encoding="utf-8") as out:
                json.dump({"version": 1, "run": "1", "epoch": 1, "attempt": 1, "host": "here", "machine": machine,
                           "process": os.getpid(), "process_start": start, "since": time.time(), "released": False}, out)
            self.wait_for_loss(20)
            self.assertEqual(self.browser.js("return document.querySelector('h1').textContent"), "live")
            self.expect_quiet(board.origin)

    def test_incomplete_lines_repeated_steps_and_replaced_files(self):
        run = write_run(self.folder("run"), steps=50, total=100, values=values)
        with Board(run) as board:
            self.browser.open_page(board.url)
            self.wait_for_loss(50)
            line = metric_line(51, values(51))
            self.append(run, line[:30])
            time.sleep(0.6)
            self.wait_for_loss(50)
            self.append(run, line[30:])
            self.wait_for_loss(51)
            repeated = {**values(51), LOSS: 1999.5}  # a resumed run repeats a step: the last attempt counts
            self.append(run, metric_line(51, repeated, attempt=2))
            self.browser.wait_for("document.querySelector('#learning .legend .value').textContent === '1,999.5'")
            write_run(run + "-new", steps=7, total=100, values=values)
            os.replace(run + "-new/metrics.jsonl", os.path.join(run, "metrics.jsonl"))
            self.wait_for_loss(7)
            points = self.browser.js("return fetch('/api/run/0/series?tag=' + encodeURIComponent(arguments[0]) + "
                                     "'&x=step&px=1000').then((a) => a.json())", LOSS)
            self.assertEqual(points["series"][LOSS]["x"], list(range(1, 8)))
            self.expect_quiet(board.origin)

    def test_the_page_returns_after_the_server(self):
        run = write_run(self.folder("run"), steps=20, total=100, values=values)
        port = free_port()
        token = self.folder("token")
        with open(token, "w", encoding="utf-8") as out:
            out.write("0123456789abcdef0123456789abcdef\n")
        os.chmod(token, 0o600)
        options = ("--listen", f"127.0.0.1:{port}", "--token-file", token)
        with Board(run, options=options) as board:
            self.browser.open_page(board.url)
            self.wait_for_loss(20)
            board.process.send_signal(signal.SIGKILL)
            board.process.wait()
            self.browser.wait_for("document.querySelector('.problems')?.textContent.includes('does not answer')")
            for step in range(21, 31):
                self.append(run, metric_line(step, values(step)))
        # It has another run now, which comes first, and the page still shows its own.
        other = write_run(self.folder("before"), steps=3, total=100, values=lambda step: {LOSS: 1.0})
        with Board(other, run, options=options):
            back = time.monotonic()
            self.wait_for_loss(30)
            self.browser.wait_for("document.querySelectorAll('#toolbar select[title=run] option').length === 2")
            self.wait_for_loss(30)
            print(f"shown again {time.monotonic() - back:.2f} s after the server came back")
            self.browser.wait_for("!document.querySelector('.problems')?.textContent.includes('does not answer')")

    def test_eight_tabs_share_one_stream(self):
        run = write_run(self.folder("run"), steps=20, total=100, values=values)
        browser = self.browser
        with Board(run) as board:
            first = browser.call("GET", "/window")
            tabs = [first]
            for i in range(8):
                if i > 0:
                    tabs.append(browser.call("POST", "/window/new", {"type": "tab"})["handle"])
                    browser.call("POST", "/window", {"handle": tabs[-1]})
                browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=COUNT_STREAMS)
                browser.open_page(board.url)
            self.append(run, metric_line(21, values(21)))
            streams = 0
            for tab in reversed(tabs):
                browser.call("POST", "/window", {"handle": tab})
                self.wait_for_loss(21)
                streams += browser.js("return window.streams")
                if tab != first:
                    browser.call("DELETE", "/window")
            browser.call("POST", "/window", {"handle": first})
            self.assertEqual(streams, 1)


class Speed(PageTest):
    def test_first_paint_and_zoom_of_eight_long_curves(self):
        """Times are printed and, with TRIREME_FULL=1, measured over 10^6 steps; nothing is asserted about them."""
        steps = 1_000_000 if board_rig.IS_FULL else 20_000
        tags = [LOSS, "loss_metrics/min", "loss_metrics/max", "grad_norm", "update_norm", "clip_limit", "lr", "throughput(tps)"]
        source = 1

        def noise(step):
            nonlocal source
            found = {}
            for tag in tags:
                source = (source * 48271) % 2147483647
                found[tag] = 1 + source / 2147483647
            return found
        run = write_run(self.folder("run"), steps=steps, values=noise)
        with Board(run) as board:
            self.browser.open_page(board.url)  # makes the cache
            self.browser.reset()
            self.browser.open_page(board.origin + "/")
            drawn = self.browser.wait_for("performance.getEntriesByName('curves-drawn')[0]?.startTime")
            zooms = []
            for factor in (0.5, 0.5, 0.5, 0.5, 0.5, 0.5):
                zooms.append(self.browser.js("""
                    performance.clearMarks();
                    return import('/app/view.js').then((page) => {
                      page.zoomRange(arguments[0]);
                      return new Promise((done) => {
                        const wait = () => {
                          const [mark] = performance.getEntriesByName('curves-drawn');
                          if (mark) done(mark.startTime - performance.getEntriesByName('curves-asked')[0].startTime);
                          else setTimeout(wait, 5);
                        };
                        wait();
                      });
                    })""", factor))
            memory = self.browser.devtools("Runtime.getHeapUsage")["usedSize"]
            print(f"{len(tags)} curves of {steps} points: first paint {drawn:.0f} ms, zoom median {sorted(zooms)[3]:.0f} ms, "
                  f"largest {max(zooms):.0f} ms, heap {memory / 2**20:.0f} MiB")
            self.expect_quiet(board.origin)


if __name__ == "__main__":
    board_rig.main()
