"""Compares Levin's HuggingFaceTokenizer with Hugging Face's package tokenizers: ids, masks and decoded strings of a
thousand strings in many scripts, through a tokenizer of every family, made here by the package itself, and MiniLM's.

    tokenizer_peers.py TOKENIZER_PROGRAM SOURCE_DIR          # exit status 77: the packages are missing
"""
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
models = pathlib.Path(os.environ.get("LEVIN_HOME") or pathlib.Path.home() / ".cache/levin") / "models-python"
sys.path.insert(0, str(models))
try:
    import sentencepiece
    import tokenizers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
    from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
except ImportError as error:
    print(f"Hugging Face's Python packages are missing ({error}): ./dev check --peers installs them.")
    sys.exit(77)

RANGES = {
    "latin": [(0x20, 0x7E), (0xC0, 0x24F)],
    "cyrillic": [(0x400, 0x4FF), (0x20, 0x20)],
    "greek": [(0x370, 0x3FF), (0x1F00, 0x1FFF)],
    "hebrew": [(0x591, 0x5F4), (0x20, 0x20)],
    "arabic": [(0x600, 0x6FF), (0xFB50, 0xFBFF)],
    "devanagari": [(0x900, 0x97F), (0x20, 0x20)],
    "bengali_tamil": [(0x980, 0x9FE), (0xB80, 0xBFA)],
    "thai": [(0xE01, 0xE3A), (0xE40, 0xE5B)],
    "chinese": [(0x4E00, 0x9FA5), (0x3000, 0x303F)],
    "rare_ideographs": [(0x20000, 0x20100), (0xF900, 0xFA2D), (0x2F800, 0x2F850)],
    "japanese": [(0x3041, 0x30FF), (0xFF00, 0xFFEF), (0x4E00, 0x4FFF)],
    "korean": [(0xAC00, 0xD7A3), (0x1100, 0x11FF), (0x20, 0x20)],
    "symbols": [(0x2000, 0x206F), (0x20A0, 0x20BF), (0x2100, 0x218F), (0x2190, 0x22FF), (0x2460, 0x24FF)],
    "emoji": [(0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x200D, 0x200D), (0xFE0F, 0xFE0F), (0x1F3FB, 0x1F3FF)],
    "mathematical": [(0x1D400, 0x1D7FF), (0xB2, 0xB3), (0x2070, 0x209C)],
    "controls": [(0x00, 0x1F), (0x7F, 0xA0), (0x200B, 0x200F), (0x2028, 0x202F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFD)],
    "marks": [(0x61, 0x7A), (0x300, 0x36F), (0x1DC0, 0x1DF5), (0x20D0, 0x20F0)],
    "compatibility": [(0x3200, 0x33FF), (0xFB00, 0xFB4F), (0xFE30, 0xFE6B)],
    "private_and_unassigned": [(0xE000, 0xE010), (0xF0000, 0xF0010), (0x378, 0x379), (0xFFFE, 0xFFFF), (0x10FFFE, 0x10FFFF)],
    "any_before_unicode_14": [(0x20, 0x52F), (0x1E00, 0x2BFF), (0xA000, 0xA48C), (0x10300, 0x1031F), (0x12000, 0x1236E)],
}
FIXED = [
    "", " ", "  ", "\n", "\t \r\n", "a", "  leading and trailing  ", "I'm you're we've HE'LL it'S they'D 'tis ''s",
    "1234567890 12 345 6789 3.14 1e10", "x = [i**2 for i in range(10)]\n\tif x:\n\t\treturn {'a': 1}\n",
    "for (int i = 0; i < n; ++i) { sum += a[i]; }  // comment\r\n\r\n\r\n#include <a>", "café cafe\u0301 naïve Ångström Ǆ ŉ ß ſ İI ıi ΑΣ Σ",
    "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8", "👩\u200d👩\u200d👧\u200d👦👍🏽🇩🇪 ☺️", "a\u0300\u0301\u0302\u0303", "\u0301x", "e\u0323\u0301 \u1e69 s\u0323\u0307",
    "<s>hello</s> <mask> <pad><unk>", "[CLS] a [SEP] b [MASK] [mask] [PAD] [UNK]", "<|begin_of_text|>hi<|end_of_text|> <|im_start|>user\nx<|im_end|>",
    "▁already▁here ▁ ▁▁", "<0x41><0x0A> <0xFF>", "ﬁﬂ ①② ㎏ ㍿ ｆｕｌｌ ｶﾞ カ゛ Å", "don't stop , it 's \" fine \" . do not", "##ing ##", "NEWTOKEN newtokens xNEWTOKEN NEWTOKEN!",
    "a" * 300, "あ" * 120, " " * 40 + "x" + " " * 7, "\u00a0\u2003x\u3000y\u200bz", "tom\u00adorrow co\u2010op \u2013 \u2014 … ' ' “ ”", "٣٤٥ ४५६ Ⅷ ½ ² ³", "\u0e33\u0e19\u0e49\u0e33",
    "word\u200d\u200cjoin \u0958 \u0c95\u0ccd", "㋿ 令和", "\r\n\r\r\n a\r\nb", "ǅungla ﷺ ﷽", "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛", "\ufeffbom", "a\u0000b", "\u0130stanbul", "x\u20e3 1\ufe0f\u20e3",
]
SPECIAL = ["<s>", "</s>", "<mask>", "[MASK]", "[SEP]", "<|im_start|>", "<|begin_of_text|>", "NEWTOKEN", "<unk>"]


def make_texts(source):
    rng = random.Random(20240)
    prose = [line for page in sorted((source / "docs").glob("*.md")) for line in page.read_text().split("\n") if line]
    code = [line for file in sorted((source / "core").glob("*.cpp")) for line in file.read_text().split("\n") if line]

    def of(name, length):
        result = ""
        while len(result) < length:
            first, last = rng.choice(RANGES[name])
            for _ in range(rng.randint(1, 6)):
                result += chr(rng.randint(first, last))
            if rng.random() < 0.3:
                result += rng.choice([" ", "  ", "\n", ".", ", ", "'"])
        return result

    strings = list(FIXED)
    names = list(RANGES)
    while len(strings) < 1000:
        kind = rng.random()
        if kind < 0.25:
            strings.append(rng.choice(prose))
        elif kind < 0.35:
            strings.append("\n".join(rng.choice(code) for _ in range(3)))
        elif kind < 0.75:
            strings.append(of(names[len(strings) % len(names)], rng.randint(1, 60)))
        elif kind < 0.9:
            strings.append("".join(of(rng.choice(names), rng.randint(1, 12)) for _ in range(rng.randint(2, 6))))
        else:
            parts = [rng.choice([rng.choice(prose)[:30], of(rng.choice(names), 5)]) for _ in range(4)]
            strings.append("".join(rng.choice(["", " ", "x"]) + part + rng.choice(["", " "]) + rng.choice(SPECIAL) for part in parts))
    return strings, prose + code


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def template(tokenizer, single, pair, names):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names])


def byte_level(corpus, pattern=None, normalizer=None, prefix_space=False, specials=("<|endoftext|>",), **model):
    tokenizer = Tokenizer(BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=pattern is None)
    tokenizer.pre_tokenizer = bytes_only if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated", invert=False), bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=list(specials), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3(corpus):
    tokenizer = byte_level(corpus, LLAMA3, specials=("<|begin_of_text|>", "<|end_of_text|>"), ignore_merges=True)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def roberta(corpus):
    tokenizer = byte_level(corpus, prefix_space=True, specials=("<s>", "<pad>", "</s>", "<unk>"), unk_token="<unk>")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("NEWTOKEN", single_word=True, normalized=True), AddedToken("  x", rstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.enable_truncation(max_length=40)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>", pad_to_multiple_of=8)
    return tokenizer


def llama2(corpus):
    trained = Tokenizer(BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=900, limit_alphabet=150, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    words += [word for word in sorted(model["vocab"], key=model["vocab"].get) if word not in words]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    template(tokenizer, "<s> $A", "<s> $A <s>:1 $B:1", ["<s>"])
    return tokenizer


def bpe_with_unknowns(corpus):
    tokenizer = Tokenizer(BPE(unk_token="<unk>", continuing_subword_prefix="@@", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.Punctuation("merged_with_previous")])
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=600, limit_alphabet=60, special_tokens=["<unk>"],
                                                              continuing_subword_prefix="@@", show_progress=False))
    return tokenizer


def clip(corpus):
    tokenizer = Tokenizer(BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=700, limit_alphabet=80, special_tokens=["<|endoftext|>"],
                                                              end_of_word_suffix="</w>", show_progress=False))
    return tokenizer


def bert(corpus, lowercase):
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=1500, limit_alphabet=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if lowercase:
        template(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["[CLS]", "[SEP]"])
        tokenizer.add_tokens([AddedToken("NEWTOKEN", normalized=True)])
    else:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
        tokenizer.enable_truncation(max_length=24, direction="left")
        tokenizer.enable_padding(length=32, direction="left", pad_type_id=2)
    return tokenizer


def charsmap(corpus):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([line for line in corpus if line.isascii()][:400]), model_writer=model, vocab_size=150,
                                             hard_vocab_limit=False, minloglevel=2)
    data = model.getvalue()
    # The proto's field 3 is the normalizer's options, whose field 2 is the map.
    at = 0

    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    def fields(at, end):
        while at < end:
            key, at = varint(at)
            if key & 7 == 2:
                size, at = varint(at)
                yield key >> 3, at, at + size
                at += size
            elif key & 7 == 0:
                _, at = varint(at)
            else:
                at += 4 if key & 7 == 5 else 8

    for number, begin, end in fields(0, len(data)):
        if number == 3:
            for inner, first, last in fields(begin, end):
                if inner == 2:
                    return data[first:last]
    raise SystemExit("sentencepiece's model has no map of characters")


def unigram(corpus, kind):
    if kind == "xlm_r":
        normalizer = normalizers.Precompiled(charsmap(corpus))
        cut = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    elif kind == "t5":
        normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(corpus)), normalizers.Replace(Regex(" {2,}"), " ")])
        cut = pre_tokenizers.Metaspace(prepend_scheme="first")
    else:
        normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip()])
        cut = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    trained = Tokenizer(Unigram())
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    # Some of the text in other scripts: all other characters are unknown.
    trained.train_from_iterator(corpus[:-700], trainers.UnigramTrainer(vocab_size=5000, special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
                                                                unk_token="<unk>", show_progress=False))
    vocab = [tuple(piece) for piece in json.loads(trained.to_str())["model"]["vocab"]]
    if kind == "bytes":
        vocab += [(f"<0x{b:02X}>", 0.0) for b in range(256)]
    tokenizer = Tokenizer(Unigram(vocab, unk_id=3, byte_fallback=kind == "bytes"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, cut
    tokenizer.decoder = decoders.Metaspace() if kind != "bytes" else decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never"), decoders.Fuse()])
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    template(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "</s>"])
    return tokenizer


def word_level(corpus):
    tokenizer = Tokenizer(WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits()])
    tokenizer.train_from_iterator(corpus, trainers.WordLevelTrainer(vocab_size=1200, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def families(corpus):
    yield "gpt2", byte_level(corpus)
    yield "llama3", llama3(corpus)
    yield "qwen", byte_level(corpus, QWEN, normalizers.NFC(), specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    yield "o200k", byte_level(corpus, O200K)
    yield "roberta", roberta(corpus)
    yield "llama2", llama2(corpus)
    yield "bpe_with_unknowns", bpe_with_unknowns(corpus)
    yield "clip", clip(corpus)
    yield "bert_uncased", bert(corpus, True)
    yield "bert_cased", bert(corpus, False)
    yield "xlm_r", unigram(corpus, "xlm_r")
    yield "t5", unigram(corpus, "t5")
    yield "unigram_bytes", unigram(corpus, "bytes")
    yield "word_level", word_level(corpus)
    archive = models / "all_minilm_l6_v2" / "model.zip"
    if archive.exists():
        with zipfile.ZipFile(archive) as files:
            name = next(name for name in files.namelist() if name.endswith("tokenizer.json"))
            yield "minilm", Tokenizer.from_str(files.read(name).decode())


SECOND = "and a second one"


def rows_of_package(tokenizer, strings):
    for text in strings:
        encoding, bare = tokenizer.encode(text), None
        pair = tokenizer.encode(text, SECOND)
        truncation, padding = tokenizer.truncation, tokenizer.padding
        tokenizer.no_truncation()
        tokenizer.no_padding()
        bare = tokenizer.encode(text, add_special_tokens=False).ids
        if truncation:
            tokenizer.enable_truncation(**truncation)
        if padding:
            tokenizer.enable_padding(**padding)
        yield [encoding.ids, encoding.type_ids, encoding.attention_mask, encoding.special_tokens_mask, bare, tokenizer.decode(bare),
               tokenizer.decode(bare, skip_special_tokens=False), pair.ids, pair.type_ids]


ROWS = ["ids", "type_ids", "attention_mask", "special_tokens_mask", "ids alone", "text", "text with special tokens", "ids of a pair",
        "type_ids of a pair"]


def main():
    program, source = sys.argv[1], pathlib.Path(sys.argv[2])
    strings, corpus = make_texts(source)
    corpus = corpus[::3] + strings
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(os.environ.get("LEVIN_KEEP", folder))
        (folder / "strings.json").write_text(json.dumps(strings))
        made = []
        for name, tokenizer in families(corpus):
            tokenizer.save(str(folder / f"{name}.json"))
            made.append((name, Tokenizer.from_file(str(folder / f"{name}.json"))))
        run = subprocess.run([program, folder / "strings.json", *(folder / f"{name}.json" for name, _ in made)], capture_output=True)
        answers = run.stdout.decode().rstrip("\n").split("\n")  # the strings hold other line ends
        if run.returncode != 0:
            print(run.stderr.decode())
            return 1
        for (name, tokenizer), answer in zip(made, answers, strict=True):
            wrong = 0
            for text, theirs, ours in zip(strings, rows_of_package(tokenizer, strings), json.loads(answer), strict=True):
                if theirs == ours:
                    continue
                wrong += 1
                if wrong > 3:
                    continue
                for row, one, other in zip(ROWS, theirs, ours):
                    if one != other:
                        print(f"{name}: {text!r}: {row}:\n  package {one}\n  levin   {other}")
                        if "ids" in row:
                            print("  ", [tokenizer.id_to_token(i) for i in one], "\n  ", [tokenizer.id_to_token(i) for i in other])
                        break
            print(f"{name}: {len(strings) - wrong} of {len(strings)} strings equal")
            failed += wrong
    print(f"tokenizers {tokenizers.__version__}: {len(made)} tokenizers, {len(strings)} strings each, {failed} differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
