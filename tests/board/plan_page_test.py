# SPDX-License-Identifier: Apache-2.0
"""The planner's page: every number that it shows is that of `trireme plan --json` for the same question, after rounding."""
import json
import os
import random
import shlex
import subprocess
import time
from urllib.parse import urlencode

import board_rig
import page_scripts
from board_rig import Board, PageTest
from plan_numbers import fault_of

SHOWN = """return [...document.querySelectorAll('#plan-answer [data-path]')].map((node) => ({path: node.dataset.path,
  text: node.textContent, over: node.dataset.over || null, band: node.dataset.band || null, sign: node.dataset.sign || null}))"""
DONE = "document.querySelector('#plan-answer #plan-verdict, #plan-answer .failed, #plan-answer .panel')"
FAILED = "return document.querySelector('#plan-answer .failed')?.textContent ?? ''"
COMMAND = "return document.querySelector('#plan-answer .command')?.value ?? ''"
SMALL = {"model": "gpt2-124m", "machine": "h100", "gpus": "4", "batch_tokens": "64k", "seq_len": "1024"}
RICH = {**SMALL, "pp": "2", "tokens": "1B", "price": "2.5", "critical_batch": "1M"}


def answer_of(command):
    """What a terminal prints for a line that the page gives."""
    words = shlex.split(command)
    assert words[:2] == ["trireme", "plan"], command
    return json.loads(subprocess.run([board_rig.PROGRAM, *words[1:], "--json"], capture_output=True, text=True).stdout)


def random_question(source):
    chance = source.random()
    machine = source.choice(["h100", "H200", "b200", "a100-80gb"])
    price = {"price": source.choice(["2.5", "0.99"])} if source.random() < 0.5 else {}
    if chance < 0.15:
        limit = source.choice([{"days": source.choice(["1", "7", "0.5"])}, {"budget": source.choice(["5k", "1M"]), "price": "2"}])
        return {"machine": machine, "gpus": source.choice(["1", "8", "64"]), **price, **limit}
    question = {"model": source.choice(["gpt2-124m", "llama3.2-1b", "llama3.1-8b", "llama3.1-70b", "qwen3-0.6b", "mixtral-8x7b"]), "machine": machine,
                "batch_tokens": source.choice(["5e5", "1M", "4M"]), "seq_len": source.choice(["1024", "1k", "8192"])}
    if chance < 0.25:
        return {**question, **price, "tokens": source.choice(["20B", "100B"]), "deadline": source.choice(["3", "30"])}
    question["gpus"] = str(2 ** source.randrange(0, 8))
    if source.random() < 0.5:
        question.update(tokens=source.choice(["1e12", "15T", "300B"]), **price)
    if source.random() < 0.3:
        question["pp"] = source.choice(["1", "2,4", "4"])
    if source.random() < 0.3:
        question["recompute"] = source.choice(["none", "full"])
    if source.random() < 0.1:
        question["layout"] = "zero=3 micro=1 full"
    if source.random() < 0.1:
        question["precision"] = "bf16,fp8-tensor"
    return question


class Planner(PageTest):
    def ask(self, board, question):
        self.browser.open("about:blank")
        self.browser.open_page(f"{board.origin}/#page=plan&plan=" + urlencode({"q": urlencode(question)})[2:])
        self.browser.wait_for(DONE, seconds=120)

    def press(self, text):
        self.browser.js("[...document.querySelectorAll('#planner button')].find((one) => one.textContent === arguments[0]).click()", text)

    def wait_for_answer(self):
        self.browser.wait_for("document.querySelector('#plan-verdict, #plan-answer .failed')", seconds=120)
        self.assertEqual(self.browser.js(FAILED), "")
        return self.browser.js("return document.querySelector('#plan-verdict').textContent")

    def expect_numbers_of(self, answer):
        shown = self.browser.js(SHOWN)
        self.assertEqual([fault for fault in (fault_of(answer, one) for one in shown) if fault], [])
        return len(shown)

    def test_numbers_are_those_of_plan(self):
        source = random.Random(11)
        compared = answered = 0
        with Board(options=("--plan",)) as board:
            self.browser.open_page(board.url)
            for _ in range(200 if board_rig.IS_FULL else 1):
                question = random_question(source) if board_rig.IS_FULL else RICH
                with self.subTest(**question):
                    self.ask(board, question)
                    command = self.browser.js(COMMAND)
                    if not command:  # refused: the page shows the reason of a terminal
                        words = [f"--{name.replace('_', '-')}={value}" for name, value in question.items()]
                        error = answer_of(shlex.join(["trireme", "plan", *words]))["error"]
                        self.assertTrue(error.startswith(self.browser.js(FAILED)), error)
                        self.browser.console()  # the browser notes the status
                        continue
                    compared += self.expect_numbers_of(answer_of(command))
                    answered += 1
            print(f"{compared} numbers of {answered} answers compared")
            self.assertGreater(compared, 30 * answered)
            self.assertGreater(answered, 0)
            self.expect_quiet(board.origin)

    def open_form(self, board):
        self.browser.open("about:blank")
        self.browser.open_page(board.url)
        self.browser.wait_for("document.querySelector('#plan-model')")
        self.assertEqual(self.browser.js("return document.title"), "Trireme planner")

    def test_the_first_click_succeeds(self):
        models = ["gpt2-1.5b", "llama3.1-8b", "qwen3-30b-a3b", "kjv-llama"] if board_rig.IS_FULL else ["gpt2-1.5b"]
        with Board(options=("--plan",)) as board:
            for model in models:
                with self.subTest(model=model):
                    self.open_form(board)
                    self.browser.js("""const node = document.querySelector('#plan-model');
                        node.value = arguments[0];
                        node.dispatchEvent(new Event('change'))""", model)
                    self.press("plan")
                    self.assertIn(model, self.wait_for_answer())
            for kind in ("sizes", "deadline") if board_rig.IS_FULL else ():
                with self.subTest(kind=kind):
                    self.open_form(board)
                    self.browser.js("document.querySelector(`.kinds [value=${arguments[0]}]`).click()", kind)
                    self.press("plan")
                    self.wait_for_answer()
            for example in self.browser.js("return [...document.querySelectorAll('.examples button')].map((one) => one.textContent)"):
                if not board_rig.IS_FULL and "70B" in example:
                    continue
                with self.subTest(example=example):
                    self.open_form(board)
                    self.press(example)
                    self.wait_for_answer()
                    if board_rig.IS_FULL or "1B" in example:
                        self.expect_numbers_of(answer_of(self.browser.js(COMMAND)))
            self.expect_quiet(board.origin)

    def test_a_layout_that_does_not_fit_leads_to_one_that_does(self):
        with Board(options=("--plan",)) as board:
            self.browser.open_page(board.url)
            self.ask(board, {"model": "llama3.2-3b", "machine": "a100-40gb", "gpus": "1", "batch_tokens": "16k", "seq_len": "2048"})
            before = self.browser.js("return document.querySelector('#plan-verdict .lamp').textContent")
            self.assertEqual(before, "does not fit")
            self.expect_numbers_of(answer_of(self.browser.js(COMMAND)))
            self.browser.js("document.querySelector('#plan-changes td button').click()")
            self.browser.wait_for("document.querySelector('#plan-verdict .lamp.good')", seconds=60)
            self.expect_quiet(board.origin)

    def test_a_refusal_stands_beside_its_field(self):
        with Board(options=("--plan",)) as board:
            self.browser.open_page(board.url)
            refused = [("gpus", "many"), ("tp", "x"), ("seq_len", "8192"), ("price", "2")]
            for name, value in refused if board_rig.IS_FULL else refused[:2]:
                with self.subTest(name=name):
                    self.ask(board, {**SMALL, name: value})
                    beside = self.browser.js("return document.querySelector(`#plan-${arguments[0]}-error`).textContent", name)
                    self.assertEqual(beside, self.browser.js(FAILED))
                    self.assertIn(f"--{name.replace('_', '-')}", beside)
                    self.assertEqual(self.browser.js("return document.activeElement.name"), name)
            self.assertEqual(self.browser.js("return document.querySelectorAll('[aria-invalid]').length"), 1)
            self.ask(board, SMALL)
            self.assertEqual(self.browser.js("return document.querySelectorAll('[aria-invalid]').length"), 0)

    def test_buttons_give_a_command_and_a_configuration(self):
        browser = self.browser
        with Board(options=("--plan",)) as board:
            browser.open_page(board.url)
            self.ask(board, {**SMALL, "layout": "zero=1 micro=2"})
            self.assertIn("--layout 'zero=1 micro=2'", browser.js(COMMAND))
            browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"], origin=board.origin)
            self.press("copy as command")
            browser.wait_for("document.querySelector('.plan-tools [role=status]').textContent === 'copied'")
            self.assertEqual(browser.js("return navigator.clipboard.readText()"), browser.js(COMMAND))
            browser.devtools("Page.setDownloadBehavior", behavior="allow", downloadPath=self.scratch)
            self.press("download the TOML")
            browser.wait_for("document.querySelector('.plan-tools [role=status]').textContent === 'saved as plan.toml'")
            saved, printed = self.folder("plan.toml"), self.folder("printed.toml")
            end = time.monotonic() + 10
            while not os.path.exists(saved) and time.monotonic() < end:
                time.sleep(0.02)
            words = shlex.split(browser.js(COMMAND))[1:]
            subprocess.run([board_rig.PROGRAM, *words, "--out", printed], check=True, capture_output=True)
            with open(saved, encoding="utf-8") as a, open(printed, encoding="utf-8") as b:
                self.assertEqual(a.read(), b.read())
            self.expect_quiet(board.origin)

    def test_layout_contrast_and_labels_at_every_width(self):
        browser = self.browser
        with Board(options=("--plan",)) as board:
            browser.open_page(board.url)
            self.ask(board, RICH)
            browser.wait_for("document.querySelector('.plan-schedule img')")
            for width in (400, 1280, 2560):
                for dark in (False, True):
                    with self.subTest(width=width, dark=dark):
                        browser.resize(width, 5000)
                        browser.set_dark(dark)
                        browser.js("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
                        count, low = browser.js(page_scripts.CONTRAST)
                        self.assertGreater(count, 50)
                        self.assertEqual(low, [])
                        _, wide, window = browser.js(page_scripts.BOXES)
                        self.assertLessEqual(wide, window)
            # Tab reaches every control; of a group of radio buttons the chosen one.
            controls = "[...document.querySelectorAll('#planner :is(input, select, button, summary, [tabindex=\"0\"])')]"
            wanted = browser.js(f"""return {controls}.filter((node) => node.getClientRects().length > 0 && (node.type !== 'radio' || node.checked)).length""")
            browser.js("document.querySelector('#planner form').focus()")
            reached = 0
            for _ in range(wanted):
                browser.press("\ue004")
                reached += browser.js(f"return {controls}.includes(document.activeElement)")
            self.assertEqual(reached, wanted)
            unnamed = """return [...document.querySelectorAll('#planner input, #planner select')].filter((node) =>
                !node.closest('label')?.textContent.trim() && !node.ariaLabel).length"""
            self.assertEqual(browser.js(unnamed), 0)
            # Every segment of the memory can be seen, and its number stands beside its name.
            self.assertGreaterEqual(min(browser.js("return [...document.querySelectorAll('.segment')].map((one) => one.getBoundingClientRect().width)")), 5)
            self.expect_quiet(board.origin)


if __name__ == "__main__":
    board_rig.main()
