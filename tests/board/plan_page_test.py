# SPDX-License-Identifier: Apache-2.0
"""The planner's page: every number that it shows is that of `trireme plan --json` for the same question."""
import json
import random
import subprocess
from urllib.parse import urlencode

import board_rig
from board_rig import Board, PageTest

SHOWN = """[...document.querySelectorAll('#plan-answer [data-path]')].map((node) => [node.dataset.path, node.textContent])"""


def at_path(answer, path):
    for part in path.split("."):
        if answer is None:
            return None
        answer = answer[int(part)] if isinstance(answer, list) else answer.get(part)
    return answer


def plan(question):
    command = [board_rig.PROGRAM, "plan", "--json"]
    for name, value in question.items():
        command += [f"--{name.replace('_', '-')}", value]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


def random_question(source):
    question = {"model": source.choice(["gpt2-124m", "llama3.2-1b", "llama3.1-8b", "llama3.1-70b"]),
                "machine": source.choice(["h100", "h200", "b200"]), "gpus": str(2 ** source.randrange(0, 7)),
                "batch_tokens": source.choice(["5e5", "1e6", "4e6"]), "seq_len": source.choice(["1024", "4096", "8192"])}
    if source.random() < 0.3:
        question["tokens"] = "1e12"
    if source.random() < 0.4:
        question["pp"] = source.choice(["1", "2,4", "4"])
    if source.random() < 0.3:
        question["recompute"] = source.choice(["none", "full"])
    return question


class Planner(PageTest):
    def ask(self, board, question):
        address = f"{board.origin}/#page=plan&plan=" + urlencode({"q": urlencode(question)})[2:]
        self.browser.open("about:blank")
        self.browser.open_page(address)
        self.browser.wait_for("document.querySelector('#plan-answer .panel, #plan-answer .failed')", seconds=120)

    def test_numbers_are_those_of_plan(self):
        source = random.Random(11)
        compared = 0
        with Board(options=("--plan",)) as board:
            self.browser.open_page(board.url)
            for _ in range(200 if board_rig.IS_FULL else 3):
                question = random_question(source)
                with self.subTest(**question):
                    self.ask(board, question)
                    answer = plan(question)
                    if "error" in answer:  # refused: the page shows the same reason
                        self.assertEqual(self.browser.js("return document.querySelector('#plan-answer .failed').textContent"),
                                         answer["error"])
                        self.browser.console()  # the browser notes the status
                        continue
                    shown = self.browser.js(f"return {SHOWN}")
                    values = [at_path(answer, path) for path, _ in shown]
                    wanted = self.browser.js("return arguments[0].map((one) => (one === null ? '–' : String(one)))", values)
                    self.assertEqual(shown, [[path, text] for (path, _), text in zip(shown, wanted)])
                    compared += len(shown)
            print(f"{compared} numbers compared")
            self.assertGreater(compared, 50)
            self.expect_quiet(board.origin)

    def test_a_question_that_cannot_be_answered_gives_the_reason(self):
        with Board(options=("--plan",)) as board:
            self.browser.open_page(board.url)
            self.ask(board, {"model": "gpt2-124m", "machine": "h100", "gpus": "many", "seq_len": "1024", "batch_tokens": "1e6"})
            self.assertIn("gpus", self.browser.js("return document.querySelector('#plan-answer').textContent"))


if __name__ == "__main__":
    board_rig.main()
