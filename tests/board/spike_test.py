# SPDX-License-Identifier: Apache-2.0
"""A spike of one step is in the picture, whatever its index and the width of the window."""
import random

import board_rig
from board_rig import Board, PageTest
from page_scripts import COLUMN_PIXELS
from run_folder import write_run

LOSS = "loss_metrics/global_avg_loss"


class Spikes(PageTest):
    def test_a_spike_of_one_step_is_visible_at_any_index_and_width(self):
        source = random.Random(7)
        cases = 1000 if board_rig.IS_FULL else 24
        steps = 100_000 if board_rig.IS_FULL else 8_000
        places = [source.randrange(1, steps + 1) for _ in range(cases)]
        spikes = {}
        for i, step in enumerate(places):
            spikes.setdefault(step, []).append(i)
        names = [f"spike/{i}" for i in range(cases)]
        flat = {name: 1.0 for name in names} if not board_rig.IS_FULL else None

        def values(step):
            # In the full run, a line has 20 of the tags, so that the file stays small.
            line = dict(flat) if flat else {names[(step * 20 + k) % cases]: 1.0 for k in range(20)}
            line[LOSS] = 2.0
            for i in spikes.get(step, []):
                line[names[i]] = 9.0
            return line
        run = write_run(self.folder("run"), steps=steps, values=values)
        missed = []
        browser = self.browser
        with Board(run) as board:
            browser.open_page(board.url)
            for i, step in enumerate(places):
                width = source.randrange(380, 2000)
                browser.resize(width, 6000)
                browser.js("location.hash = '#tag=' + encodeURIComponent(arguments[0])", names[i])
                browser.wait_for("document.querySelector('#metric .chart').dataset.drawn === arguments[0]",
                                 f"{names[i]} {width}")
                [found] = browser.js(COLUMN_PIXELS, "metric", [(step - 1) / (steps - 1)])
                if found["high"] < 20:
                    missed.append((i, step, width, found))
        print(f"spikes seen: {cases - len(missed)} of {cases}")
        self.assertEqual(missed, [])


if __name__ == "__main__":
    board_rig.main()
