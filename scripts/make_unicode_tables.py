#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes src/text/unicode/tables.cpp: the character classes that Hugging Face `tokenizers` uses, asked from that library
# for every code point, so that src/text splits and normalizes text as it does. Made with tokenizers 0.23.2, whose parts
# follow different versions of Unicode (regular expressions 16, digits 17, punctuation 8, normalization 9).
#   make_unicode_tables.py OUTPUT [DUMP]   DUMP.json keeps or provides the answers of `tokenizers`
import json
import os
import sys

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Bopomofo Thai Lao Khmer Myanmar Arabic Hebrew Cyrillic Greek Latin Devanagari "
           "Emoji").split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def add(ranges, first, last):
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1][1] = last
    else:
        ranges.append([first, last])


def ask():
    from tokenizers import Regex
    from tokenizers import normalizers as N
    from tokenizers import pre_tokenizers as P
    every = "".join(map(chr, POINTS))

    def regex(name):
        ranges = []
        split = P.Split(Regex("[" + name + "]+"), behavior="removed", invert=True)
        for _, (begin, end) in split.pre_tokenize_str(every):
            first, last = POINTS[begin], POINTS[end - 1]
            if first < 0xD800 and last >= 0xE000:
                add(ranges, first, 0xD7FF)
                first = 0xE000
            add(ranges, first, last)
        return ranges

    def table(claim):
        ranges = []
        for point in POINTS:
            if claim(chr(point)):
                add(ranges, point, point)
        return ranges

    def splits(part):
        return lambda c: len(part.pre_tokenize_str("a" + c + "b")) > 1

    white = P.Whitespace()
    return {
        "onig": {**{"p" + name: regex("\\p{" + name + "}") for name in CATEGORIES + SCRIPTS},
                 **{name: regex("\\" + name) for name in "swd"}},
        "rust": {"punctuation": table(splits(P.Punctuation("isolated"))), "numeric": table(splits(P.Digits(False))),
                 "notword": table(splits(white)), "regex_space": table(lambda c: not white.pre_tokenize_str(c)),
                 "whitespace": table(splits(P.WhitespaceSplit())),
                 "accents": table(lambda c: N.StripAccents().normalize_str("a" + c) == "a")},
        "maps": {name: [[c, form.normalize_str(chr(c))] for c in POINTS
                        if not 0xAC00 <= c <= 0xD7A3 and form.normalize_str(chr(c)) != chr(c)]
                 for name, form in (("lower", N.Lowercase()), ("nfc", N.NFC()), ("nfd", N.NFD()), ("nfkc", N.NFKC()),
                                    ("nfkd", N.NFKD()))}}


def points(ranges):
    return {c for first, last in ranges for c in range(first, last + 1)}


def ranges_of(wanted):
    ranges = []
    for c in sorted(wanted):
        add(ranges, c, c)
    return ranges


def lower_runs(pairs):
    # [first, last, step, shift]: every step-th code point from first to last is lowered by adding shift.
    runs = []
    for c, text in pairs:
        if len(text) != 1:
            assert c == 0x130 and text == "i\u0307", hex(c)
            continue
        shift = ord(text) - c
        if runs and runs[-1][3] == shift and c - runs[-1][1] in (1, 2) and \
                (runs[-1][0] == runs[-1][1] or c - runs[-1][1] == runs[-1][2]):
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, shift])
    return runs


def wrapped(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(lines + [line])


def array(kind, name, items):
    items = list(items)
    return f"const std::array<{kind}, {len(items)}> {name} = {{{{\n{wrapped(items)}\n}}}};\n"


def pair(first_last):
    return "{0x%X, 0x%X}" % tuple(first_last)


def main():
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        answers = json.load(open(sys.argv[2]))
    else:
        answers = ask()
        if len(sys.argv) > 2:
            json.dump(answers, open(sys.argv[2], "w"), separators=(",", ":"))
    onig, rust, maps = answers["onig"], answers["rust"], answers["maps"]
    # Relations that the code relies on.
    assert points(onig["s"]) == points(rust["whitespace"]) == points(rust["regex_space"])
    assert points(onig["d"]) == points(onig["pNd"])
    assert set(POINTS) - points(rust["notword"]) == points(onig["w"]) | {0x200C, 0x200D}
    parts = ["// SPDX-License-Identifier: Apache-2.0\n// Written by scripts/make_unicode_tables.py from the answers of "
             "Hugging Face tokenizers 0.23.2.\n// clang-format off\n"
             "#include \"text/unicode/tables.h\"\n\nnamespace trireme::text {\nnamespace {\n"]
    categories = sorted((first, last, name) for name in CATEGORIES for first, last in onig["p" + name])
    parts.append(array("CategoryRange", "category_table", ("{0x%X, 0x%X, \"%s\"}" % row for row in categories)))
    named = {"white_space": points(onig["s"]), "word": points(onig["w"]), "rust_numeric": points(rust["numeric"]),
             "rust_punctuation": points(rust["punctuation"]), "rust_mark": points(rust["accents"])}
    # Code points that normalization leaves alone although newer tables know them.
    marks = points(onig["pMn"]) | points(onig["pMc"]) | points(onig["pMe"])
    import unicodedata
    changed = set()
    for name in ("nfc", "nfd", "nfkc", "nfkd"):
        known = dict((c, text) for c, text in maps[name])
        changed |= {c for c in POINTS if not 0xAC00 <= c <= 0xD7A3
                    and unicodedata.normalize(name.upper(), chr(c)) != known.get(c, chr(c))}
    newer_letters = set(range(0x1E030, 0x1E06E))  # decompositions of Unicode 15
    named["unknown_to_normalization"] = (marks - points(rust["accents"])) | changed | newer_letters
    for name, wanted in named.items():
        parts.append(array("CodePointRange", name + "_table", map(pair, ranges_of(wanted))))
    for name in SCRIPTS:
        parts.append(array("CodePointRange", name.lower() + "_table", map(pair, onig["p" + name])))
    parts.append(array("LowerRange", "lower_table", ("{0x%X, 0x%X, %d, %d}" % tuple(r) for r in lower_runs(maps["lower"]))))
    parts.append("}  // namespace\n\nstd::span<const CategoryRange> category_ranges() { return category_table; }\n"
                 "std::span<const LowerRange> lower_ranges() { return lower_table; }\n")
    for name in named:
        parts.append(f"std::span<const CodePointRange> {name}_ranges() {{ return {name}_table; }}\n")
    parts.append("\nstd::span<const CodePointRange> script_ranges(std::string_view name) {\n" + "".join(
        f"  if (name == \"{name}\") return {name.lower()}_table;\n" for name in SCRIPTS) + "  return {};\n}\n")
    parts.append("\n}  // namespace trireme::text\n")
    with open(sys.argv[1], "w") as out:
        out.write("\n".join(parts))


main()
