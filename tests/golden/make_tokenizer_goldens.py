#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Makes the files of tests/golden/tokenizers with Hugging Face `tokenizers` (0.23.2 made those that are kept):
#   make_tokenizer_goldens.py FOLDER [parts]   (parts: only parts.json, in seconds)
# goldens.json: texts, a hash of the answers for every text and tokenizer, and some answers in full; *.tokenizer.json:
# five tokenizers trained here; splits.json: how three regular expressions split every code point; parts.json:
# pre-tokenizers, normalizers, decoders and unusual tokenizers; normal_forms.json: hashes over all code points.
# known_models.json: what bench/peers/tokenizer_shapes.py saves, without vocabularies.
# sentencepiece.json and the two .model files come from spm_train and the Python binding of SentencePiece 0.1.97:
#   spm_train --input=TEXT --model_type=unigram|bpe --vocab_size=420 --normalization_rule_name=identity
#     --character_coverage=0.995 --num_threads=1, with --byte_fallback=true for bpe
import hashlib
import json
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, processors, trainers
from tokenizers import decoders as D
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

OUT = sys.argv[1]
HERE = __file__.rsplit("/", 1)[0]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
rng = random.Random(7)
words = json.load(open(HERE + "/tokenizers/words.json"))


def save(name, content, **kind):
    with open(f"{OUT}/{name}", "w") as out:
        json.dump(content, out, ensure_ascii=False, separators=(",", ":"), **kind)


# --- texts: the order of random numbers is part of the goldens (train_bpe_test.cpp repeats it)

def line():
    parts = []
    for _ in range(rng.randrange(1, 30)):
        if rng.random() < .7:
            parts.append(rng.choice(words))
        else:
            parts.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(1, 9))))
        parts.append(rng.choice([" ", " ", " ", "", "  ", "\n", "   ", "\t"]))
    return "".join(parts)


def character():
    while True:
        c = rng.randrange(0, 0x110000)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


train_text = [line() for _ in range(4000)]
texts = [line() for _ in range(300)] + [
    "", " ", "  ", "\n", "a", "'", "'S", "'sS", "I'LL'D", " 's", "12345678901234567890", "\u00a0\u00a0a", "a\u180eb",
    " \u180e ", "x" * 3000, "ab" * 1500, " " * 500 + "a", "\n" * 300, "<|endoftext|>",
    "a<|endoftext|>b<|endoftext|> c", "<|im_start|>user\nhi<|im_end|>\n", " <mask> x", "a <mask>  b", "<pad><pad>"
] + ["".join(character() for _ in range(rng.randrange(1, 40))) for _ in range(200)]


# --- five tokenizers

def train(tokenizer, special):
    tokenizer.train_from_iterator(train_text, trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, special_tokens=special, initial_alphabet=P.ByteLevel.alphabet()))
    return tokenizer


def split_bpe(regex, norm=None, **options):
    t = Tokenizer(models.BPE(**options))
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = P.Sequence([P.Split(Regex(regex), behavior="isolated", invert=False),
                                  P.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    t.decoder = D.ByteLevel()
    return t


def make_gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    t.decoder = D.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, ["<|endoftext|>"])


def make_llama3():  # a template with bos, ignore_merges
    t = train(split_bpe(LLAMA3, ignore_merges=True), ["<|begin_of_text|>", "<|endoftext|>"])
    bos = "<|begin_of_text|>"
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                      special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def make_qwen2():  # NFC, added tokens with flags
    t = train(split_bpe(QWEN2, norm=N.NFC()), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=False, normalized=False, special=False),
                  AddedToken("<pad>", single_word=True, normalized=True, special=False),
                  AddedToken("naïve", normalized=True, special=False)])
    return t


def make_llama2():  # byte fallback, prepend and replace, fuse_unk; split for training only
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    t.pre_tokenizer = P.Split("▁", "merged_with_next")
    t.train_from_iterator(train_text[:1500], trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, limit_alphabet=200,
        special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]))
    content = json.loads(t.to_str())
    content["pre_tokenizer"] = None
    content["added_tokens"] = [a for a in content["added_tokens"] if a["id"] < 3]
    t = Tokenizer.from_str(json.dumps(content))
    t.decoder = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                     special_tokens=[("<s>", 1)])
    return t


def make_metaspace():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = N.Sequence([N.NFKC(), N.Lowercase(), N.Strip()])
    t.pre_tokenizer = P.Sequence([P.Metaspace(), P.Digits(individual_digits=True), P.Punctuation()])
    t.decoder = D.Metaspace()
    t.train_from_iterator(train_text, trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, special_tokens=["<unk>"], limit_alphabet=300))
    return t


def answers(t, text):
    ids = t.encode(text).ids
    return {"ids": ids, "plain": t.encode(text, add_special_tokens=False).ids,
            "decoded": t.decode(ids, skip_special_tokens=True),
            "decoded_all": t.decode(ids, skip_special_tokens=False)}


def hash_of(row):
    text = json.dumps(list(row.values()), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def make_goldens():
    goldens = {"tokenizers_version": tokenizers.__version__, "texts": texts, "hashes": {}, "rows": {}}
    kept = [i for i, text in enumerate(texts) if len(text) < 200 and (i % 24 == 0 or 300 <= i < 324)]
    for name, make in (("gpt2", make_gpt2), ("llama3", make_llama3), ("qwen2", make_qwen2), ("llama2", make_llama2),
                       ("metaspace", make_metaspace)):
        t = make()
        t.save(f"{OUT}/{name}.tokenizer.json", pretty=False)
        rows = [answers(t, text) for text in texts]
        goldens["hashes"][name] = [hash_of(row) for row in rows]
        goldens["rows"][name] = {str(i): rows[i] for i in kept}
    save("goldens.json", goldens)


# --- every code point

def split_runs(regex):
    split = P.Split(Regex(regex), behavior="isolated", invert=False)
    classes, ranges = {}, []
    for point in POINTS:
        c = chr(point)
        key = "|".join(",".join(str(end - begin) for _, (begin, end) in split.pre_tokenize_str(context)) for context in
                       (c, "a" + c + "b", "1" + c + "2", " " + c + " ", "\n" + c + "\n", "'" + c, c + c + " x"))
        number = classes.setdefault(key, len(classes))
        if ranges and ranges[-1][2] == number and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point, number])
    return {"classes": list(classes), "ranges": ranges}


def normal_form_hash(form):
    made = hashlib.sha256()
    for point in POINTS:
        if not 0xAC00 <= point <= 0xD7A3:
            made.update(form.normalize_str(chr(point)).encode() + b"\n")
    return made.hexdigest()


# --- parts

PART_TEXTS = json.load(open(HERE + "/tokenizers/parts.json"))["texts"]
TOKEN_LISTS = json.load(open(HERE + "/tokenizers/parts.json"))["token_lists"]
WHOLE_TEXTS = json.load(open(HERE + "/tokenizers/parts.json"))["whole_texts"]


def json_of(field, part):
    t = Tokenizer(models.BPE())
    setattr(t, field, part)
    return json.loads(t.to_str())[field]


def isolated(regex):
    return P.Split(Regex(regex), "isolated")


def pre_tokenizers():
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            for pattern in ("X", Regex(r"-|\s+"), Regex(r"\p{N}{1,3}"), Regex("x*")):
                yield P.Split(pattern, behavior, invert)
        yield P.Punctuation(behavior)
    for flag in (False, True):
        for use_regex in (False, True):
            yield P.ByteLevel(add_prefix_space=flag, use_regex=use_regex)
        yield P.Digits(flag)
    for scheme in ("always", "first", "never"):
        for split in (False, True):
            yield P.Metaspace(prepend_scheme=scheme, split=split)
    yield P.Whitespace()
    yield P.WhitespaceSplit()
    yield P.Sequence([P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False), P.Digits(False),
                      isolated("[0-9][0-9][0-9]")])
    yield P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")])
    yield P.Sequence([P.Split("X", "isolated"), P.Metaspace(prepend_scheme="first")])
    yield P.Sequence([
        isolated(r"\p{N}{1,3}"), isolated("[一-龥぀-ゟ゠-ヿ]+"),
        isolated(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                 r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""), P.ByteLevel(False, use_regex=False)])
    yield isolated(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                   r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    for regex in (r"^a", r"a$", r"\w+", r"\W+", r"\d+", r"\h+", r".+", r"(?i)hello", r"[[:alpha:]]+", r"[\w&&[^a]]+",
                  r"\bx", r"b{1,2}+", r"\s+$", r"\p{Han}+", r"\p{^L}+", r"\P{L}+", r"[^\P{L}]+", r"\S+", r"(?<!a)b",
                  r"[\]\-a]+", r"\A\s", r"\R", r"(?m:.+)", r"(?i:straße)", r"(?i:k)", r"\x{301}", r"\u0301",
                  r"[\u3000-\u30ff]+", r"\Z", r"[a-c\s]+", r"(a)\1"):
        yield isolated(regex)


def normalizers():
    return (N.NFC(), N.NFD(), N.NFKC(), N.NFKD(), N.Lowercase(), N.Strip(), N.Strip(True, False), N.Strip(False, True),
            N.StripAccents(), N.Replace("X", "--"), N.Replace(Regex(r"\s+"), " "), N.Replace(Regex("x*"), "_"),
            N.Prepend("▁"), N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]))


def decoders():
    return (D.ByteLevel(), D.ByteFallback(), D.Fuse(), D.Strip("H", 1, 0), D.Strip("H", 2, 0), D.Replace("▁", " "),
            D.Replace(Regex("H+"), "h"), D.Metaspace(), D.Metaspace(prepend_scheme="never"),
            D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]),
            D.Sequence([D.Fuse(), D.Replace("He", "ab"), D.Strip("H", 2, 0)]),
            D.Sequence([D.ByteFallback(), D.Metaspace()]), D.Sequence([D.Fuse(), D.Metaspace()]),
            D.Sequence([D.ByteLevel(), D.Strip("x", 1, 0)]))


FLAGS = [AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<sw>", single_word=True, normalized=False),
         AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True, normalized=False),
         AddedToken("<lr>", lstrip=True, rstrip=True), AddedToken("café"), AddedToken("<N>"),
         AddedToken("<a>", normalized=False), AddedToken("<ab>", normalized=False),
         AddedToken("<abc>", normalized=False), AddedToken("abc", single_word=True)]


def whole(name, model, pre, norm=None, decoder=None, size=330, special=(), byte_level=True, added=(), bos_eos=False):
    t = Tokenizer(model)
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(WHOLE_TEXTS * 3, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=list(special),
        initial_alphabet=P.ByteLevel.alphabet() if byte_level else [], limit_alphabet=1000 if byte_level else 40))
    if decoder:
        t.decoder = decoder
    t.add_tokens(list(added))
    if bos_eos:
        t.add_special_tokens(["<s>", "</s>"])
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair=None, special_tokens=[(x, t.token_to_id(x)) for x in ("<s>", "</s>")])
    return {"name": name, "tokenizer": json.loads(t.to_str()),
            "cases": [list(answers(t, text).values()) for text in WHOLE_TEXTS]}


def unusual_tokenizers():
    unk = {"unk_token": "<unk>"}
    prefix = P.ByteLevel(add_prefix_space=True)
    plain = P.ByteLevel(add_prefix_space=False)
    yield whole("prefix_space_flags", models.BPE(), prefix, decoder=D.ByteLevel(), added=FLAGS, bos_eos=True)
    yield whole("lower_flags", models.BPE(), plain, N.Sequence([N.NFKD(), N.StripAccents(), N.Lowercase()]),
                D.ByteLevel(), added=FLAGS)
    yield whole("metaspace_first_strip", models.BPE(**unk), P.Metaspace(prepend_scheme="first"), N.Strip(),
                D.Metaspace(prepend_scheme="first"), 90, ["<unk>"], False, FLAGS[:4])
    yield whole("fuse_unk", models.BPE(fuse_unk=True, **unk), P.Metaspace(prepend_scheme="first", split=False), None,
                None, 80, ["<unk>"], False, FLAGS[:4])
    yield whole("falcon", models.BPE(), P.Sequence([P.Punctuation("contiguous"), plain, P.Digits(False),
                                                    isolated("[0-9][0-9][0-9]")]), None, D.ByteLevel())
    # White space that is a token, behind a token that takes the white space on its right.
    yield whole("space_tokens", models.BPE(), plain, None, D.ByteLevel(), added=[
        AddedToken("<r>", rstrip=True, normalized=False), AddedToken("\n\n", normalized=False),
        AddedToken("\t\t", lstrip=True, normalized=False), AddedToken("  ")])
    yield whole("half_fallback", models.BPE(byte_fallback=True, fuse_unk=True, **unk), None, N.Replace(" ", "▁"),
                D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]), 200,
                ["<unk>"] + ["<0x%02X>" % i for i in range(0, 256, 2)], False)


def make_parts():
    parts = [{"kind": "pre_tokenizer", "json": json_of("pre_tokenizer", part),
              "cases": [[piece for piece, _ in part.pre_tokenize_str(text)] for text in PART_TEXTS]}
             for part in pre_tokenizers()]
    parts += [{"kind": "normalizer", "json": json_of("normalizer", part),
               "cases": [part.normalize_str(text) for text in PART_TEXTS]} for part in normalizers()]
    save("parts.json", {
        "texts": PART_TEXTS, "parts": parts, "token_lists": TOKEN_LISTS,
        "decoders": [{"json": json_of("decoder", part), "cases": [part.decode(tokens) for tokens in TOKEN_LISTS]}
                     for part in decoders()],
        "whole_texts": WHOLE_TEXTS, "whole": list(unusual_tokenizers())})


make_parts()
if sys.argv[2:] == ["parts"]:
    sys.exit()
make_goldens()
save("splits.json", {"contexts": ["c", "acb", "1c2", " c ", "\\nc\\n", "'c", "cc x"],
                     "splits": {name: split_runs(regex)
                                for name, regex in (("gpt2", GPT2), ("llama3", LLAMA3), ("qwen2", QWEN2))}})
forms = {"lower": N.Lowercase(), "nfc": N.NFC(), "nfd": N.NFD(), "nfkc": N.NFKC(), "nfkd": N.NFKD()}
save("normal_forms.json", {"all_code_points": {name: normal_form_hash(form) for name, form in forms.items()}})
