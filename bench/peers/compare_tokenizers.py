#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Trireme's tokenizers with Hugging Face `tokenizers`: ids, decoded text, pieces and speed.

  compare_tokenizers.py --program build/release/bench/tokenizer_answers [--part PART]... [--mb 200] [--text FILE]...

Parts (all of them unless some are named):
  ids      three tokenizers of 50,000 to 150,000 tokens on --mb MB of texts made from a seed
  points   how every code point is split, alone and between a letter, digit, space and newline
  shapes   tokenizer.json as known models publish them, and variations; and those that are refused
  speed    MB/s of one thread on --text and on texts made from a seed, by size of the documents; long words
Prints a table for each part and ends with 1 if anything differs; --out FILE stores all of it as JSON. --text is also
trained on. The files lie in --folder, which needs about three times --mb; the three tokenizers there are used again.
"""
import argparse
import json
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("RUST_BACKTRACE", "0")
import numpy
import tokenizers
from tokenizers import Tokenizer, models
from tokenizers import normalizers as N

import tokenizer_shapes as shapes
from tokenizer_corpus import Corpus

BIG = {"gpt2": 50257, "llama3": 128000, "qwen2.5": 151643}
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CONTEXTS = ["{}", "a{}b", "1{}2", " {} ", "\n{}\n", "'{}", "{0}{0} x"]


def write_texts(path, texts):
    with open(path, "wb") as out:
        for text in texts:
            data = text if isinstance(text, bytes) else text.encode()
            out.write(struct.pack("<I", len(data)) + data)


class Answers:
    """Reads what tokenizer_answers wrote."""

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 0

    def count(self):
        (value,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4
        return value

    def text(self):
        size = self.count()
        self.at += size
        return self.data[self.at - size:self.at]

    def ids(self):
        size = self.count()
        self.at += 4 * size
        return numpy.frombuffer(self.data, "<i4", size, self.at - 4 * size)


def start(program, *arguments):
    return subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(err.strip())
    return out


# --- ids and decoded text

def answers_of(t, text, plain):
    """Ids and decoded texts, or None where `tokenizers` itself stops with a panic."""
    try:
        ids = t.encode(text, add_special_tokens=not plain).ids
        return (numpy.array(ids, "<i4"), t.decode(ids).encode(), t.decode(ids, skip_special_tokens=False).encode())
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def compare_ids(program, file, texts, path, plain=False):
    """Returns the texts whose ids or decoded texts differ. Those that are bytes go to Trireme as they are."""
    write_texts(path, texts)
    ours = start(program, "ids", file, path, path + ".answers", *(["plain"] if plain else []))
    t = Tokenizer.from_file(file)
    rows = [answers_of(t, text.decode(errors="replace") if isinstance(text, bytes) else text, plain) for text in texts]
    finish(ours)
    answers, differ = Answers(path + ".answers"), []
    for text, theirs in zip(texts, rows):
        row = (answers.ids(), answers.text(), answers.text())
        if theirs is None:
            differ.append(("tokenizers panics", text))
        elif not numpy.array_equal(row[0], theirs[0]):
            differ.append(("ids", text))
        elif row[1:] != theirs[1:]:
            differ.append(("decoded", text))
    os.remove(path + ".answers")
    return differ


def shrink(program, file, text, path):
    """The shortest text that is found by cutting and still differs."""
    size, end = len(text) // 2, time.time() + 4
    while size > 0 and time.time() < end:
        for begin in range(0, len(text), size):
            shorter = text[:begin] + text[begin + size:]
            if compare_ids(program, file, [shorter], path):
                text = shorter
                break
        else:
            size //= 2
    return text


def report(program, file, differ, path):
    """At most three of the texts that differ, cut down."""
    return [{"what": what, "text": repr(shrink(program, file, text, path)[:200])} for what, text in differ[:3]]


def ids_task(task):
    program, files, seed, size, folder = task
    texts = Corpus(seed).documents(size)
    path = f"{folder}/ids-{seed}"
    made = {"documents": len(texts), "bytes": sum(len(text.encode()) for text in texts), "differ": {}}
    for name, file in files.items():
        differ = compare_ids(program, file, texts, path)
        made["differ"][name] = [len(differ), report(program, file, differ, path)]
    os.remove(path)
    return made


def train_big(task):
    name, size, folder, texts = task
    os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(max(1, os.cpu_count() // len(BIG))))
    pre = {"gpt2": shapes.byte_level(True), "llama3": [shapes.isolated(shapes.LLAMA3), shapes.byte_level()],
           "qwen2.5": [shapes.isolated(shapes.QWEN2), shapes.byte_level()]}[name]
    options = {"gpt2": {}, "llama3": {"ignore_merges": True, "bos": "<|begin_of_text|>"}, "qwen2.5": {"norm": N.NFC()}}[name]
    special = ("<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
    file = f"{folder}/{name}.json"
    t = shapes.byte_bpe(texts, pre, special=special, size=size, **options)
    t.save(file)
    os.environ.update(TOKENIZERS_PARALLELISM="false")
    return name, file, t.get_vocab_size()


# --- every code point

def points_task(task):
    program, name, file, points, contexts, path = task
    texts = [context.format(chr(c)) for c in points for context in contexts]
    write_texts(path, texts)
    ours = start(program, "pieces", file, path, path + ".answers")
    pre = Tokenizer.from_file(file).pre_tokenizer
    theirs = [[piece.encode() for piece, _ in pre.pre_tokenize_str(text)] for text in texts]
    finish(ours)
    answers = Answers(path + ".answers")
    differ = [text for text, row in zip(texts, theirs) if [answers.text() for _ in range(answers.count())] != row]
    os.remove(path + ".answers")
    os.remove(path)
    return name, len(texts), len(differ), [repr(text) for text in differ[:5]]


# --- shapes

def shapes_task(task):
    program, name, folder, texts, checked = task
    file, path = f"{folder}/shape-{abs(hash(name))}.json", f"{folder}/texts-{abs(hash(name))}"
    row = {"name": name, "file": file, "refused": "", "differ": 0, "cases": []}
    try:
        (shapes.SHAPES | shapes.REFUSED)[name](texts).save(file)
    except Exception as error:
        return row | {"differ": 1, "cases": [f"not trained: {error}"]}
    try:
        compare_ids(program, file, [], path)  # opens it
        differ = compare_ids(program, file, checked, path) + compare_ids(program, file, checked[::7], path, plain=True)
        row.update(differ=len(differ), cases=report(program, file, differ, path))
    except RuntimeError as error:
        row["refused"] = str(error).replace(file, "FILE")
    return row


# --- speed

THEIRS = """
import json, struct, sys, time
from tokenizers import Tokenizer
t, data, at, texts = Tokenizer.from_file(sys.argv[1]), open(sys.argv[2], "rb").read(), 0, []
while at < len(data):
    (size,) = struct.unpack_from("<I", data, at)
    texts.append(data[at + 4:at + 4 + size].decode())
    at += 4 + size
ways = {"encode": lambda: [t.encode(x) for x in texts], "encode_batch": lambda: t.encode_batch(texts),
        "encode_batch_fast": lambda: t.encode_batch_fast(texts)}
best = {}
for way, work in ways.items():
    for _ in range(int(sys.argv[3])):
        start = time.process_time()
        work()
        best[way] = min(best.get(way, 1e9), time.process_time() - start)
print(json.dumps(best))
"""


def time_both(program, file, texts, path, passes, core):
    """Seconds of Trireme (first pass, best of the later ones) and of `tokenizers` (best of its ways)."""
    write_texts(path, texts)
    pin = ["taskset", "-c", str(core)] if core is not None else []
    ours = json.loads(finish(start(*pin, program, "time", file, path, str(3 * passes))))["seconds"]
    theirs = json.loads(finish(start(*pin, sys.executable, "-c", THEIRS, file, path, str(passes))))
    way = min(theirs, key=theirs.get)
    size = sum(len(text.encode()) for text in texts) / 1e6
    return {"mb": size, "first": size / ours[0], "ours": size / min(ours[1:]), "theirs": size / theirs[way], "way": way,
            "ratio": theirs[way] / min(ours[1:]), "ratio_first": theirs[way] / ours[0]}


def cut(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


def speed_rows(options, files, shape_files, natural):
    rng = random.Random(5)
    hard = "".join(Corpus(99).document(20000) for _ in range(options.speed_mb * 30))
    size = options.speed_mb * 10**6
    sources = {name: text[:size] for name, text in natural.items()} | {"made by seed": hard[:size // 2]}
    first = next(iter(sources))
    path = f"{options.folder}/speed"
    for name, file in files.items():
        for source, text in sources.items():
            for size in (1000, 10000, 1000000) if source == first else (10000,):
                yield {"tokenizer": name, "texts": f"{source}, {size // 1000} KB",
                       **time_both(options.program, file, cut(text, size), path, 2, options.core)}
    name, file = next(iter(files.items()))
    words = {"letters": "etaoinshrdlu", "digits": "0123456789", "spaces": " ", "signs": "-+*/=<>!?.:#",
             "letters and digits": "abcdefghijklmnopqrstuvwxyz0123456789"}
    for kind, alphabet in words.items():
        word = "".join(rng.choices(alphabet, k=10**6))
        row = time_both(options.program, file, [word], path, 1, options.core)
        write_texts(path, [word * 8])
        eight = json.loads(finish(start(options.program, "time", file, path, "2")))["seconds"]
        yield {"tokenizer": name, "texts": f"1 MB of {kind}", **row, "eight_times": min(eight) * row["ours"] / 8}
    for name, file in shape_files.items():
        yield {"tokenizer": name, "texts": f"{first}, 10 KB", **time_both(
            options.program, file, cut(sources[first][:1000000], 10000), path, 1, options.core)}


# --- tables

def print_table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |", flush=True)


class Comparison:
    def __init__(self, options):
        self.options, self.bad, self.result = options, 0, {"tokenizers": tokenizers.__version__}
        self.pool = multiprocessing.get_context("spawn").Pool(options.processes)
        self.natural = {os.path.basename(path): open(path, encoding="utf-8", errors="replace").read()
                        for path in options.text}
        self.files, self.shape_files = {}, {}

    def train(self):
        texts = Corpus(1000).documents(8_000_000)
        for text in self.natural.values():
            texts += cut(text[:8_000_000], 20000)
        begin = time.time()
        self.files = {name: f"{self.options.folder}/{name}.json" for name in BIG}
        tasks = [(name, size, self.options.folder, texts) for name, size in BIG.items()
                 if not os.path.exists(self.files[name])]
        for name, file, size in self.pool.imap_unordered(train_big, tasks):
            print(f"trained {name}: {size} tokens ({time.time() - begin:.0f} s)", flush=True)

    def start_ids(self):
        count = self.options.processes * max(1, self.options.mb // (16 * self.options.processes))
        size = self.options.mb * 10**6 // count
        return self.pool.map_async(ids_task, [(self.options.program, self.files, seed, size, self.options.folder)
                                              for seed in range(count)], chunksize=1)

    def finish_ids(self, made):
        rows = []
        for name in self.files:
            differ = sum(part["differ"][name][0] for part in made)
            cases = [case for part in made for case in part["differ"][name][1]][:5]
            self.bad += differ
            rows.append((name, sum(part["documents"] for part in made), sum(part["bytes"] for part in made), differ,
                         json.dumps(cases)))
        print_table(("tokenizer", "texts", "bytes", "texts that differ", "cases"), rows)
        return rows

    def start_points(self):
        tasks, parts = [], {"gpt2": [shapes.GPT2], "llama3": [shapes.LLAMA3], "qwen2.5": [shapes.QWEN2]}
        more = {"qwen with marks": [shapes.QWEN_MARKS], "gpt-4o": [shapes.GPT4O], "tekken": [shapes.TEKKEN],
                "kimi-k2": [shapes.KIMI], "deepseek-v3": shapes.DEEPSEEK3, "deepseek-coder": shapes.DEEPSEEK_CODER,
                "deepseek-llm": shapes.DEEPSEEK_LLM, "bloom": [shapes.BLOOM]}
        points, steps = (POINTS if not self.options.quick else POINTS[::29]), 16
        for name, regexes in (parts | more).items():
            t = Tokenizer(models.BPE())
            t.pre_tokenizer = shapes.P.Sequence([shapes.isolated(regex) for regex in regexes])
            file = f"{self.options.folder}/split-{name.replace(' ', '-')}.json"
            t.save(file)
            contexts = CONTEXTS if name in parts else ["a{0}B{0}1{0} {0} x\n{0}\n'{0}{0} x"]
            tasks += [(self.options.program, name, file, points[i::steps], contexts, f"{file}.{i}") for i in range(steps)]
        return self.pool.map_async(points_task, tasks, chunksize=1)

    def finish_points(self, made):
        rows = {}
        for name, texts, differ, cases in made:
            row = rows.setdefault(name, [name, 0, 0, []])
            row[1], row[2], row[3] = row[1] + texts, row[2] + differ, row[3] + cases
            self.bad += differ
        rows = [(*row[:3], " ".join(row[3][:5])) for row in rows.values()]
        print_table(("expression", "texts", "that differ", "cases"), rows)
        return rows

    def start_shapes(self):
        texts = Corpus(2000).documents(400_000)
        for text in self.natural.values():
            texts += cut(text[:100_000], 5000)
        rng = random.Random(6)
        checked = Corpus(2001).documents(self.options.shape_kb * 1000) + [Corpus(s).document(30) for s in range(600)]
        checked += [bytes(rng.choices([*range(97, 105), *range(128, 256)], k=40)) for _ in range(200)]
        names = [*shapes.SHAPES, *shapes.REFUSED]
        return self.pool.map_async(shapes_task, [(self.options.program, n, self.options.folder, texts, checked)
                                                 for n in names], chunksize=1)

    def finish_shapes(self, made):
        rows = []
        for row in made:
            is_bad = row["differ"] > 0 or bool(row["refused"]) != (row["name"] in shapes.REFUSED)
            self.bad += is_bad
            self.shape_files[row["name"]] = row["file"]
            rows.append((row["name"], "DIFFERS" if is_bad else "refused" if row["refused"] else "equal",
                         row["refused"] or row["differ"], json.dumps(row["cases"])))
        print_table(("tokenizer", "result", "texts that differ, or message", "cases"), rows)
        return rows

    def speed(self):
        names = ("llama2, mistral-v0.1", "gemma", "deepseek-v3", "gpt-4o, gpt-oss, llama4", "starcoder, smollm", "falcon")
        chosen = {name: self.shape_files[name] for name in names if name in self.shape_files}
        rows = []

        def cells():
            for r in speed_rows(self.options, self.files, chosen, self.natural):
                rows.append(r)
                yield (r["tokenizer"], r["texts"], f"{r['ours']:.1f} ({r['first']:.1f})",
                       f"{r['theirs']:.2f} ({r['way']})", f"{r['ratio']:.1f} ({r['ratio_first']:.1f})",
                       f"{r['eight_times']:.2f}" if "eight_times" in r else "")

        print_table(("tokenizer", "texts", "Trireme MB/s (first pass)", "tokenizers MB/s", "ratio (first pass)",
                     "8 MB over 8 x 1 MB"), cells())
        return rows

    def finish(self, part, begin, work):
        print(f"\n== {part}", flush=True)
        try:
            self.result[part] = work()
        except Exception as error:  # the other parts go on
            self.bad += 1
            print(f"FAILED: {error!r}")
        print(f"== {part}: {time.time() - begin:.0f} s", flush=True)
        if self.options.out:
            with open(self.options.out, "w") as out:
                json.dump(self.result, out, ensure_ascii=False, indent=1)

    def run(self):
        parts = self.options.part or ["ids", "points", "shapes", "speed"]
        os.makedirs(self.options.folder, exist_ok=True)
        if "ids" in parts or "speed" in parts:
            self.train()
        begin = time.time()
        started = {part: getattr(self, "start_" + part)() for part in ("ids", "shapes", "points") if part in parts}
        for part, task in started.items():
            self.finish(part, begin, lambda: getattr(self, "finish_" + part)(task.get()))
        if "speed" in parts:  # alone, when nothing else runs
            self.finish("speed", time.time(), self.speed)
        print(f"== tokenizers {tokenizers.__version__}: {self.bad} differences")
        return 1 if self.bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True, help="tokenizer_answers")
    p.add_argument("--part", action="append", choices=("ids", "points", "shapes", "speed"))
    p.add_argument("--mb", type=int, default=200, help="MB of texts for ids (%(default)s)")
    p.add_argument("--shape-kb", type=int, default=1000, help="KB of texts for each shape (%(default)s)")
    p.add_argument("--speed-mb", type=int, default=4, help="MB of texts to time (%(default)s)")
    p.add_argument("--text", action="append", default=[], help="a file of natural text or code, for training and speed")
    p.add_argument("--processes", type=int, default=os.cpu_count())
    p.add_argument("--core", type=int, help="pins the timed programs to this core")
    p.add_argument("--quick", action="store_true", help="one code point of 29")
    p.add_argument("--folder", default="/tmp/compare_tokenizers")
    p.add_argument("--out", help="a JSON file for all results")
    options = p.parse_args()
    options.program = os.path.abspath(options.program)
    sys.exit(Comparison(options).run())


if __name__ == "__main__":
    main()
