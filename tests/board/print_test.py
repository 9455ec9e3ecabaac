# SPDX-License-Identifier: Apache-2.0
"""Reports printed to PDF: every panel is filled, and nothing is outside of the paper."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import board_rig
from rich_run import write_rich_run
from run_folder import write_run

DPI = 72  # a pixel is a point
PANELS = {"Is it learning?": "2.5923", "Is it stable?": "gradient", "As fast as planned?": "tokens/s",
          "Where does the rest go?": "", "What happened?": "rank 3 does not answer", "Can I go back?": "",
          "Who is slow?": "rank 15", "Which layer is unstable?": "embedding", "Does it fit?": "stash 2 GiB",
          "Are the experts busy?": "experts without rows", "Which block loses its numbers?": "blocks.2 act",
          "Does the pipeline run as planned?": "planned: 198 ms", "Which collectives take time?": "all_gather",
          "Is the hardware healthy?": "654.3 W", "What did it cost?": "useful steps", "What does it read?": "waiting for batches",
          "Any metric": "learning rate"}
WITHOUT_COLOR = {"Where does the rest go?", "What happened?", "Can I go back?", "Is the hardware healthy?"}
WIDE = {"Which block loses its numbers?"}  # what is lost is at the right


class Page:
    """A page of a PDF: its words [(x, y, bottom, text)] and its pixels."""

    def __init__(self, words, picture):
        self.words = words
        with open(picture, "rb") as file:
            magic, size, _, self.pixels = file.read().split(b"\n", 3)
        assert magic == b"P6"
        self.width, self.height = map(int, size.split())

    def find(self, title):
        """Where a title begins, and its lower edge; None if it is not on this page."""
        wanted = title.split()
        texts = [text for *_, text in self.words]
        for i in range(len(texts) - len(wanted) + 1):
            if texts[i:i + len(wanted)] == wanted:
                return self.words[i][0], self.words[i][2]
        return None

    def colored(self, left, top, right, bottom):
        """How many pixels of a box are neither white nor grey."""
        count = 0
        for y in range(max(0, int(top)), min(self.height, int(bottom))):
            row = self.pixels[3 * (y * self.width + int(left)):3 * (y * self.width + min(self.width, int(right)))]
            count += sum(max(row[i:i + 3]) - min(row[i:i + 3]) > 25 for i in range(0, len(row) - 2, 3))
        return count

    def is_white(self, left, right):
        """Whether a strip from the top to the bottom of the page is empty."""
        return all(self.pixels[3 * (y * self.width + left):3 * (y * self.width + right)].strip(b"\xff") == b""
                   for y in range(self.height))


class Printing(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="board-print-")
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def printed(self, run):
        """The pages of the report of a run, and all of its text."""
        name = os.path.join(self.scratch, os.path.basename(run))
        subprocess.run([board_rig.PROGRAM, "report", run, "--out", f"{name}.html"], check=True, capture_output=True)
        subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                        f"--user-data-dir={self.scratch}/profile", "--no-pdf-header-footer", f"--print-to-pdf={name}.pdf",
                        f"file://{name}.html"], check=True, capture_output=True, timeout=120)
        subprocess.run(["pdftoppm", "-r", str(DPI), f"{name}.pdf", name], check=True)
        boxes = subprocess.run(["pdftotext", "-bbox", f"{name}.pdf", "-"], check=True, capture_output=True, text=True).stdout
        word = re.compile(r'<word xMin="([\d.]+)" yMin="([\d.]+)" xMax="[\d.]+" yMax="([\d.]+)">(.*?)</word>')
        pictures = sorted(os.path.join(self.scratch, file) for file in os.listdir(self.scratch)
                          if file.startswith(f"{os.path.basename(run)}-") and file.endswith(".ppm"))
        pages = [Page([(float(x), float(y), float(bottom), text) for x, y, bottom, text in word.findall(part)], picture)
                 for part, picture in zip(boxes.split("<page ")[1:], pictures, strict=True)]
        text = subprocess.run(["pdftotext", "-layout", f"{name}.pdf", "-"], check=True, capture_output=True, text=True).stdout
        return pages, " ".join(text.split())

    def expect_on_paper(self, pages):
        for page in pages:
            self.assertTrue(page.is_white(page.width - 20, page.width) and page.is_white(0, 20), "a panel is outside of the paper")

    def test_every_panel_of_a_report_is_filled(self):
        pages, text = self.printed(write_rich_run(os.path.join(self.scratch, "rich")))
        self.expect_on_paper(pages)
        self.assertNotIn("no data", text)
        self.assertNotIn("No data", text)
        for title, content in PANELS.items():
            with self.subTest(title):
                places = [(page, page.find(title)) for page in pages if page.find(title)]
                self.assertEqual(len(places), 1)
                page, (x, bottom) = places[0]
                self.assertIn(content, text)
                if title not in WITHOUT_COLOR:
                    right = page.width - 20 if title in WIDE else x + 220
                    self.assertGreater(page.colored(x, bottom + 12, right, bottom + 120), 60, "there is no picture")

    def test_the_report_of_a_short_run_names_what_it_has_no_data_for(self):
        pages, text = self.printed(write_run(os.path.join(self.scratch, "bare"), steps=20))
        self.expect_on_paper(pages)
        self.assertEqual(text.count("No data for:"), 1)
        (page, (x, bottom)), = [(page, page.find("Is it learning?")) for page in pages if page.find("Is it learning?")]
        self.assertGreater(page.colored(x, bottom + 12, x + 220, bottom + 120), 60)


if __name__ == "__main__":
    CHROMIUM = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
    missing = [name for name in ("pdftotext", "pdftoppm") if not shutil.which(name)] + ([] if CHROMIUM else ["chromium"])
    if missing:
        print(f"skipped: {', '.join(missing)} is not installed")
        sys.exit(board_rig.SKIPPED)
    board_rig.main()
