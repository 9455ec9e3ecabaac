# SPDX-License-Identifier: Apache-2.0
# The tokenizer.json of known models, with their normalizer, pre-tokenizer, post-processor, decoder and options of the
# model as published, and vocabularies trained here; and variations that no model has. SHAPES: name to function of a
# list of texts; REFUSED: those that Trireme refuses by name.
import json

from tokenizers import AddedToken, Regex, Tokenizer, models, processors, trainers
from tokenizers import decoders as D
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN_MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}"
         rf"|\p{{N}}{{1,3}}{_TAIL}")
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}{_TAIL}"
KIMI = ("[\\p{Han}]+|" + GPT4O.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")).replace("[\\r\\n/]*", "[\\r\\n]*")
DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
DEEPSEEK_LLM = ["[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽ]+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
BYTES = ["<0x%02X>" % i for i in range(256)]
FLAGS = [AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<pad>", single_word=True, normalized=False),
         AddedToken("<|user|>", rstrip=True, normalized=False), AddedToken("<|end|>", lstrip=True, rstrip=True),
         AddedToken("naïve"), AddedToken("\n\n", normalized=False), AddedToken("<think>"), AddedToken("    ")]


def isolated(regex):
    return P.Split(Regex(regex), "isolated")


def byte_level(use_regex=False, prefix=False):
    return P.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def train(t, texts, size=3000, special=("<|endoftext|>",), alphabet=True):
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=list(special), limit_alphabet=400,
        initial_alphabet=P.ByteLevel.alphabet() if alphabet else []))
    return t


def byte_bpe(texts, pre, norm=None, special=("<|endoftext|>",), added=(), bos=None, size=3000, decoder=None, **options):
    """A byte-level tokenizer."""
    t = Tokenizer(models.BPE(**options))
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = pre if isinstance(pre, P.PreTokenizer) else P.Sequence(pre)
    t.decoder = decoder or D.ByteLevel()
    train(t, texts, size, special)
    t.add_tokens(list(added))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if bos:
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def char_bpe(texts, norm=None, pre=None, decoder=None, special=("<unk>", "<s>", "</s>"), byte_tokens=BYTES, added=(),
             bos="<s>", **options):
    """A tokenizer of characters, with tokens of bytes for unknown ones. It is trained with a split at spaces."""
    t = Tokenizer(models.BPE(unk_token="<unk>", **options))
    t.normalizer = N.Replace(" ", "▁")
    t.pre_tokenizer = P.Split("▁", "merged_with_next")
    train(t, texts, 2500, [*special, *byte_tokens], alphabet=False)
    content = json.loads(t.to_str())
    content["pre_tokenizer"] = content["normalizer"] = None
    content["added_tokens"] = [a for a in content["added_tokens"] if a["id"] < len(special)]
    t = Tokenizer.from_str(json.dumps(content))
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    if decoder:
        t.decoder = decoder
    t.add_tokens(list(added))
    if bos:
        t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                                         special_tokens=[(bos, t.token_to_id(bos))])
    return t


def fallback_decoder(strips=True):
    return D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()] + ([D.Strip(" ", 1, 0)] if strips else []))


def llama2(texts, **changes):
    return char_bpe(texts, **({"norm": N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), "decoder": fallback_decoder(),
                               "byte_fallback": True, "fuse_unk": True} | changes))


def gemma(texts):
    spaces = [AddedToken(c * n, normalized=False) for c in ("\n", "▁") for n in range(2, 9)]
    return char_bpe(texts, N.Replace(" ", "▁"), P.Split(" ", "merged_with_previous"), fallback_decoder(False),
                    ("<unk>", "<bos>", "<eos>"), added=spaces, bos="<bos>", byte_fallback=True, fuse_unk=True)


def phi3(texts):
    names = ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"]
    return llama2(texts, added=[AddedToken(n, rstrip=True, normalized=False, special=True) for n in names])


def neox(texts):
    spaces = [AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)]
    return byte_bpe(texts, byte_level(True), N.NFC(), ("<|endoftext|>", "<|padding|>"), spaces)


def metaspace(texts, norm=None, **options):
    return char_bpe(texts, norm, P.Metaspace(**options), D.Metaspace(**options), added=FLAGS[:4], fuse_unk=False)


def unigram(texts):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = P.Metaspace()
    t.train_from_iterator(["a few words of plain text " + str(i) for i in range(100)], trainers.UnigramTrainer(
        vocab_size=2000, show_progress=False))
    return t


def word_piece(texts):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.pre_tokenizer = P.BertPreTokenizer()
    t.train_from_iterator(texts[:200], trainers.WordPieceTrainer(vocab_size=500, show_progress=False,
                                                                 special_tokens=["[UNK]"]))
    return t


def with_affix(texts, **affix):
    t = Tokenizer(models.BPE(unk_token="<unk>", **affix))
    t.pre_tokenizer = P.WhitespaceSplit()
    t.train_from_iterator(texts[:200], trainers.BpeTrainer(vocab_size=900, show_progress=False,
                                                           special_tokens=["<unk>"], **affix))
    return t


SHAPES = {
    "gpt2": lambda x: byte_bpe(x, byte_level(True)),
    "roberta (prefix space)": lambda x: byte_bpe(x, byte_level(True, True), added=FLAGS),
    "llama2, mistral-v0.1": llama2,
    "llama2 (no legacy)": lambda x: llama2(x, norm=None, pre=P.Metaspace(prepend_scheme="first", split=False)),
    "mistral-nemo (tekken)": lambda x: byte_bpe(x, [isolated(TEKKEN), byte_level()], ignore_merges=True),
    "llama3": lambda x: byte_bpe(x, [isolated(LLAMA3), byte_level()], special=("<|begin_of_text|>", "<|endoftext|>"),
                                 bos="<|begin_of_text|>", ignore_merges=True),
    "qwen2.5, qwen3": lambda x: byte_bpe(x, [isolated(QWEN2), byte_level()], N.NFC(),
                                         ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), FLAGS[6:]),
    "qwen with marks": lambda x: byte_bpe(x, [isolated(QWEN_MARKS), byte_level()], N.NFC()),
    "gemma": gemma,
    "deepseek-v3": lambda x: byte_bpe(x, [*map(isolated, DEEPSEEK3), byte_level()], N.Sequence([])),
    "deepseek-coder": lambda x: byte_bpe(x, [*map(isolated, DEEPSEEK_CODER), P.Digits(True), byte_level()]),
    "deepseek-llm": lambda x: byte_bpe(x, [*map(isolated, DEEPSEEK_LLM), P.Digits(True), byte_level()]),
    "phi-2": lambda x: byte_bpe(x, byte_level(True), added=[AddedToken(" " * n) for n in range(31, 1, -1)]),
    "phi-3": phi3,
    "gpt-4o, gpt-oss, llama4": lambda x: byte_bpe(x, [isolated(GPT4O), byte_level()]),
    "kimi-k2": lambda x: byte_bpe(x, [isolated(KIMI), byte_level()]),
    "starcoder, smollm": lambda x: byte_bpe(x, [P.Digits(True), byte_level(True)]),
    "command-r": lambda x: byte_bpe(x, [P.Digits(True), byte_level(True)], N.NFC(), bos="<|endoftext|>"),
    "falcon": lambda x: byte_bpe(x, [P.Punctuation("contiguous"), byte_level(True), P.Digits(False),
                                     isolated("[0-9][0-9][0-9]")]),
    "bloom": lambda x: byte_bpe(x, [isolated(BLOOM), byte_level()]),
    "gpt-neox, olmo": neox,
    "olmo-2, phi-4, glm-4": lambda x: byte_bpe(x, [isolated(LLAMA3), byte_level()], added=FLAGS),
    "nfkc lowercase strip": lambda x: byte_bpe(x, byte_level(True), N.Sequence([N.NFKC(), N.Lowercase(), N.Strip()]),
                                               added=FLAGS[:-1]),
    "nfd strip accents": lambda x: byte_bpe(x, byte_level(True), N.Sequence([N.NFD(), N.StripAccents()]), added=FLAGS),
    "nfkd replace prepend": lambda x: byte_bpe(
        x, byte_level(), N.Sequence([N.NFKD(), N.Replace(Regex(r"\s+"), " "), N.Prepend("x")]), added=FLAGS),
    "no merges ignored, prefix": lambda x: byte_bpe(x, byte_level(True, True), ignore_merges=True, added=FLAGS),
    "metaspace always": lambda x: metaspace(x),
    "metaspace first": lambda x: metaspace(x, prepend_scheme="first"),
    "metaspace never, whole": lambda x: metaspace(x, N.NFKC(), prepend_scheme="never", split=False),
    "half of the bytes": lambda x: llama2(x, byte_tokens=BYTES[::2], added=FLAGS),
    "unknown, not fused": lambda x: llama2(x, byte_fallback=False, fuse_unk=False),
    "unknown, fused": lambda x: llama2(x, byte_fallback=False, added=FLAGS),
    "no decoder": lambda x: char_bpe(x, pre=P.Sequence([P.WhitespaceSplit(), P.Punctuation()])),
    "whitespace": lambda x: char_bpe(x, N.Lowercase(), P.Whitespace(), D.Fuse(), fuse_unk=True, ignore_merges=True),
}
REFUSED = {
    "t5, xglm (Unigram)": unigram,
    "bert (WordPiece)": word_piece,
    "clip (end_of_word_suffix)": lambda x: with_affix(x, end_of_word_suffix="</w>"),
    "continuing_subword_prefix": lambda x: with_affix(x, continuing_subword_prefix="##"),
}
