# SPDX-License-Identifier: Apache-2.0
# Texts that are hard to tokenize, made from a seed: the same seed gives the same texts. A document is a mixture of
# words, source code, numbers, scripts that are written from the right, with marks or without spaces, emoji, control
# characters, white space, any code points, very long words, and text that looks like a special token.
import random

SPECIAL = ["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<pad>", "<mask>",
           "<|user|>", "<|end|>", "<bos>", "<0x0A>", "<0xE4>", "<0xzz>", "<|endof", "text|>", "<|", "|>", "▁", "▁▁", "Ġ",
           "<|endoftext|><|endoftext|>", "<think>", "naïve", "[INST]", "\n\n", "    "]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'ſ", "’s", "'", "''", "'x", " 's", "'lL"]
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\r", "   ", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u2028",
          "\u0085", "\u180e", "\u200b", "\v", "\f", "\x1c", "\u202f", "\u205f"]
MARKS = [chr(c) for r in ((0x300, 0x370), (0x483, 0x488), (0x591, 0x5BE), (0x64B, 0x660), (0x93C, 0x950), (0xE31, 0xE3B),
                          (0x1AB0, 0x1ABF), (0x1DC0, 0x1E00), (0x20D0, 0x20F1), (0x3099, 0x309B), (0xFE20, 0xFE30),
                          (0x1D165, 0x1D16A)) for c in range(*r)]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇫🇷🇩", "❤️", "1️⃣", "#️⃣", "☃", "🧑🏿‍🚀", "🤷‍♀️", "\U0001FAE8", "⌚", "🀄", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
CONTROLS = [chr(c) for c in [*range(0, 32), *range(127, 160), 0xAD, 0x200C, 0x200D, 0x200E, 0x200F, 0x202A, 0x202E, 0x2060,
                             0x2066, 0xFEFF, 0xFFF9, 0xFFFD, 0xFFFE, 0xFFFF, 0xE000, 0xF8FF, 0x1FFFE, 0x10FFFF, 0xE0001]]
NUMBERS = ["0", "1", "7", "12", "345", "6789", "10000000", "3.14", "1,000", "٣", "१२", "１２", "²", "½", "Ⅷ", "〇", "一", "①", "𝟘"]
SCRIPTS = {"cjk": (0x4E00, 0x9FFF), "kana": (0x3041, 0x30FF), "hangul": (0xAC00, 0xD7A3), "jamo": (0x1100, 0x11FF),
           "arabic": (0x621, 0x6D3), "hebrew": (0x591, 0x5EA), "devanagari": (0x904, 0x94D), "thai": (0xE01, 0xE4E),
           "cyrillic": (0x400, 0x52F), "greek": (0x370, 0x3FF), "latin": (0xC0, 0x24F), "extended": (0x1E00, 0x1EFF),
           "wide": (0xFF01, 0xFFEF), "compatibility": (0xF900, 0xFAFF), "mathematical": (0x1D400, 0x1D7FF),
           "unassigned": (0x30000, 0x3FFFF), "symbols": (0x2000, 0x2BFF), "forms": (0xFB00, 0xFDFF)}
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


class Corpus:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        words = random.Random(1)  # the same words for every seed
        self.words = ["".join(words.choices(LETTERS, range(26, 0, -1), k=words.randrange(1, 11))) for _ in range(20000)]
        self.words += ["camelCase", "snake_case", "HTTPServer", "don't", "I'll", "O'Neil's", "café", "e.g.", "U.S.A."]
        total, self.weights = 0.0, []
        for i in range(len(self.words)):  # a few words are frequent
            total += 1 / (i + 10)
            self.weights.append(total)
        self.kinds = [(self.prose, 40), (self.code, 8), (self.numbers, 5), (self.script, 22), (self.marks, 5),
                      (self.emoji, 4), (self.controls, 3), (self.spaces, 3), (self.points, 4), (self.special, 3),
                      (self.contractions, 3), (self.long_word, 0.4), (self.capitals, 2)]

    def prose(self):
        text = self.rng.choices(self.words, cum_weights=self.weights, k=self.rng.randrange(5, 120))
        text[0] = text[0].capitalize()
        for _ in range(len(text) // 8):
            text[self.rng.randrange(len(text))] += self.rng.choice([",", ".", ";", ":", "?", "!", "...", " -", "\n", "'s", '"'])
        return " ".join(text) + self.rng.choice(SPACES)

    def code(self):
        lines = []
        for _ in range(self.rng.randrange(1, 12)):
            a, b = self.rng.choices(self.words, cum_weights=self.weights, k=2)
            lines.append(self.rng.choice(["\t", "  ", "    ", "        ", ""]) * self.rng.randrange(3) + self.rng.choice(
                [f"if ({a} != {b}[{self.rng.randrange(300)}]) {{", f"return {a}.{b}(x, y);", "}", f"// {a}: {b}",
                 f"self.{a}_{b} = {a.upper()}::{b}<int64_t>();", f'"{a}\\n{b}"', f"#define {a.upper()} 0x{self.rng.randrange(9999):x}"]))
        return "\n".join(lines) + "\n"

    def numbers(self):
        return "".join(self.rng.choices(NUMBERS, k=self.rng.randrange(1, 12))) + self.rng.choice(["", " ", "a", "-", "\n"])

    def script(self):
        first, last = self.rng.choice(list(SCRIPTS.values()))
        separators = self.rng.choice([[""], ["", "", "", " "], ["", "", "", "", " ", "。", "، ", ", "]])
        count = self.rng.randrange(2, 60)
        return "".join(chr(self.rng.randint(first, last)) + s for s in self.rng.choices(separators, k=count))

    def marks(self):
        bases = self.rng.choice(["aeiouAEIOUcnsz", "कखगघ", "אבגד", "ابتث", "かきくハヒ", "가각가", " \n1a"])
        return "".join(self.rng.choice(bases) + "".join(self.rng.choices(MARKS, k=self.rng.choice([0, 1, 1, 2, 5])))
                       for _ in range(self.rng.randrange(1, 30)))

    def emoji(self):
        return self.rng.choice(["", " "]).join(self.rng.choices(EMOJI, k=self.rng.randrange(1, 10)))

    def controls(self):
        return "".join(self.rng.choices(CONTROLS + ["a", " ", "1"], k=self.rng.randrange(1, 20)))

    def spaces(self):
        return "".join(self.rng.choices(SPACES, k=self.rng.randrange(1, 30))) + self.rng.choice(["", "a", "7", "!"])

    def points(self):
        text = "".join(chr(self.rng.randrange(0x110000)) for _ in range(self.rng.randrange(1, 40)))
        return "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)

    def special(self):
        return self.rng.choice(["", " ", "a", "\n"]).join(self.rng.choices(SPECIAL, k=self.rng.randrange(1, 5)))

    def contractions(self):
        return "".join(self.rng.choices(self.words[:50] + ["", " "], k=1) + self.rng.choices(CONTRACTIONS, k=2))

    def long_word(self):
        alphabet = self.rng.choice([LETTERS, "ab", "0123456789", "=", " ", "é", "中", LETTERS + "0123456789/+", "\n", "á"])
        return "".join(self.rng.choices(alphabet, k=int(10 ** self.rng.uniform(2, 4.3))))

    def capitals(self):
        return " ".join(self.rng.choices(self.words, k=self.rng.randrange(1, 12))).upper()

    def document(self, size):
        """A text of about `size` characters."""
        makers, weights = zip(*self.kinds)
        parts, length = [], 0
        while length < size:
            part = self.rng.choices(makers, weights)[0]()
            parts.append(part[: 2 * size + 20])
            length += len(parts[-1])
        return "".join(parts)

    def documents(self, total):
        """Documents of 1 to 100,000 characters, `total` bytes in all."""
        made, size = ["", " ", "\n", "a"], 0
        while size < total:
            made.append(self.document(int(10 ** self.rng.uniform(0, 5))))
            size += len(made[-1].encode())
        return made
