"""Records what Hugging Face's package tokenizers makes of texts, a case for each behaviour:
  PYTHONPATH=~/.cache/levin/models-python python3 tests/data/reference/huggingface_tokenizer.py
writes huggingface_tokenizer.json, which huggingface_tokenizer_test.cpp reads. Most cases have a WordLevel model of just the
words that occur, so that the ids tell how a text is cut."""
import base64
import json
import pathlib
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers as n, pre_tokenizers as p, processors
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece

TEXTS = ["Hello, wörld!  it's 12 km² — (don't)...", "  a-b--c  \t d\n", "Ünï\u0301 ﬁ ß İ ΑΣ Ǆ", "漢字kana ひらがな 한글", "a\u0000b\u200bc\ufffd\x07d",
         "", " ", "x▁y z", "1234567 ٣٤ Ⅷ", "''s ??!", "\r\n\r\na"]
cases = []


def record(name, tokenizer, texts=TEXTS):
    rows = []
    for text in texts:
        one, pair = tokenizer.encode(text), tokenizer.encode(text, "b c")
        rows.append({"text": text, "ids": one.ids, "type_ids": one.type_ids, "attention_mask": one.attention_mask,
                     "special_tokens_mask": one.special_tokens_mask, "decoded": tokenizer.decode(one.ids),
                     "decoded_with_special_tokens": tokenizer.decode(one.ids, skip_special_tokens=False),
                     "pair_ids": pair.ids, "pair_type_ids": pair.type_ids})
    cases.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "rows": rows})


def words_of(normalizer, cut, texts=TEXTS):
    words = {"<unk>": 0}
    for text in [*texts, "b c"]:
        text = normalizer.normalize_str(text) if normalizer else text
        for word, _ in cut.pre_tokenize_str(text) if cut else ([(text, None)] if text else []):
            words.setdefault(word, len(words))
    return words


def with_words(normalizer, cut, texts=TEXTS):
    tokenizer = Tokenizer(WordLevel(words_of(normalizer, cut, texts), unk_token="<unk>"))
    if normalizer:
        tokenizer.normalizer = normalizer
    if cut:
        tokenizer.pre_tokenizer = cut
    return tokenizer


def charsmap():
    """Returns a hand-made charsmap in sentencepiece's format, which maps "①" to "1" and "ａ" to "a b"."""
    keys = {"①".encode(): "1", "ａ".encode(): "a b", b"\x07": ""}
    texts, begins = b"", {}
    for key, value in keys.items():
        begins[key] = len(texts)
        texts += value.encode() + b"\0"
    units, used, next_free = {}, {0}, [256]

    def place(position, prefix):
        children = sorted({key[len(prefix)] for key in keys if key.startswith(prefix) and len(key) > len(prefix)})
        base = next_free[0]
        next_free[0] += 256
        offset = base ^ position
        assert offset < 1 << 21
        leaf = 1 << 8 if prefix in keys else 0
        units[position] = (offset << 10) | leaf | (prefix[-1] if prefix else 0)
        if leaf:
            units[base] = (1 << 31) | begins[prefix]
        for byte in children:
            place(base ^ byte, prefix + bytes([byte]))

    place(0, b"")
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(next_free[0] + 256))
    return struct.pack("<I", len(trie)) + trie + texts


for name, normalizer in {
    "NFC": n.NFC(), "NFD": n.NFD(), "NFKC": n.NFKC(), "NFKD": n.NFKD(), "Lowercase": n.Lowercase(), "Nmt": n.Nmt(),
    "StripAccents": n.Sequence([n.NFD(), n.StripAccents()]), "Strip": n.Strip(), "Strip left": n.Strip(right=False),
    "Strip right": n.Strip(left=False), "Prepend": n.Prepend("_"), "Replace a string": n.Replace("'", "’’"),
    "Replace a pattern": n.Replace(Regex(r"\s+|\p{N}"), "#"), "ByteLevel normalizer": n.ByteLevel(),
    "BertNormalizer": n.BertNormalizer(), "BertNormalizer cased": n.BertNormalizer(lowercase=False),
    "BertNormalizer keeps": n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=True),
}.items():
    record(name, with_words(normalizer, p.WhitespaceSplit()))
record("no normalizer or pre-tokenizer", with_words(None, None))

for name, cut in {
    "Whitespace": p.Whitespace(), "WhitespaceSplit": p.WhitespaceSplit(), "BertPreTokenizer": p.BertPreTokenizer(),
    "Punctuation": p.Punctuation(), "Punctuation removed": p.Punctuation("removed"), "Digits": p.Digits(),
    "Digits alone": p.Digits(individual_digits=True), "CharDelimiterSplit": p.CharDelimiterSplit("-"),
    "FixedLength": p.FixedLength(3), "ByteLevel": p.ByteLevel(add_prefix_space=False),
    "ByteLevel with a space": p.ByteLevel(add_prefix_space=True), "ByteLevel alone": p.ByteLevel(False, use_regex=False),
    "Metaspace always": p.Metaspace(), "Metaspace first": p.Metaspace(prepend_scheme="first"),
    "Metaspace never": p.Metaspace(prepend_scheme="never"), "Metaspace unsplit": p.Metaspace(split=False),
    "Metaspace first after a split": p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="first")]),
    "ByteLevel before another": p.Sequence([p.ByteLevel(False), p.Digits(True)]),
    "Split by nothing": p.Split(Regex(""), "isolated"),
    **{f"Split {behavior}": p.Split("-", behavior)
       for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")},
    "Split inverted": p.Split(Regex(r"\w+"), "removed", invert=True),
    **{f"Split by {pattern}": p.Split(Regex(pattern), "isolated") for pattern in (
        r"\p{L}+", r"\p{N}{1,3}", r"(?i:'S|HE)", r"\s+(?!\S)", r"^a|b$", r"[^\s\p{L}]", r"\d{2}+", r"\h", r"\u0061|\x{62}", r"\p{Greek}",
        r"\p{^L}", r"\bb", r".", r"[\w]+", r"[\W]+", r"[^\w\s]", r"[^\W\d]+", r"[\w-]+", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[a-c[x-z]]",
        r"[^a-c[^b-d]]", r"[a-z&&[^aeiou]]+", r"[\w&&[^\d_]&&[^a-d]]+", r"[^\w&&\D]+", r"[[:alpha:]]+", r"[[:^alpha:]]", r"[[:punct:]]",
        r"[[:alnum:][:space:]]+", r"[[:lower:]]|[[:upper:]]{2}", r"[[:word:]]", r"[]a]+", r"[^]a]+", r"\x{f6}|\x{e9}", r"[a\-[b-]]")},
    "UnicodeScripts": p.UnicodeScripts(),
}.items():
    record(name, with_words(None, cut))
SCRIPT_TEXTS = ["  どこで生れ。Yes", "漢字カナひらがなー", "abcабвαβγ", "12 ab 34", "a\u0300b \u0378c", "   ", "ا ب a"]
record("UnicodeScripts of mixed strings", with_words(None, p.UnicodeScripts(), SCRIPT_TEXTS), SCRIPT_TEXTS)

# Which word counts as the first after a normalizer.
FIRST_TEXTS = ["", "  a b", "\x07a b", "\u0301a b", "a a", "aab a", "ﬁ a", "éa b", "漢a", "① b", "ａ b", "İ x", "xa b"]
for name, normalizer in {
    "Strip": n.Strip(), "Nmt": n.Nmt(), "StripAccents": n.StripAccents(), "NFD": n.NFD(), "NFKD": n.NFKD(), "NFC": n.NFC(),
    "Lowercase": n.Lowercase(), "BertNormalizer": n.BertNormalizer(), "Prepend": n.Prepend(" "), "ByteLevel": n.ByteLevel(),
    "Precompiled": n.Precompiled(charsmap()), "Replace a": n.Replace("a", ""), "Replace a with b c": n.Replace("a", "b c"),
    "Replace first": n.Replace(Regex("^."), ""), "Replace two": n.Replace(Regex("^.."), "_"), "Replace start": n.Replace(Regex("^"), "_ "),
    "Strip and Prepend": n.Sequence([n.Strip(), n.Prepend("_ ")]), "Prepend and Strip": n.Sequence([n.Prepend("  "), n.Strip()]),
}.items():
    for kind, cut in {"": p.Metaspace(prepend_scheme="first"), " and a split": p.Sequence([p.WhitespaceSplit(), p.Digits(True), p.Metaspace(prepend_scheme="first")])}.items():
        words = set()
        for text in [*FIRST_TEXTS, "b c"]:
            words |= {word.lstrip("▁") for word, _ in cut.pre_tokenize_str(normalizer.normalize_str(text))}
        tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(["<unk>", "▁", *(mark + word for word in sorted(words) for mark in ("", "▁") if word)])},
                                        unk_token="<unk>"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, cut
        record(f"Metaspace first{kind} after {name}", tokenizer, FIRST_TEXTS)

bpe = {c: i for i, c in enumerate("<unk> a b c d ab abc cd ▁ ##b ##c a##b".split())}
merges = [("a", "b"), ("ab", "c"), ("c", "d")]
BPE_TEXTS = ["abcd", "aabbcd", "axxb", "é", "", "x", "ab▁cd", "abxcd"]
record("BPE", Tokenizer(BPE(bpe, merges)), BPE_TEXTS)
record("BPE with unk_token", Tokenizer(BPE(bpe, merges, unk_token="<unk>")), BPE_TEXTS)
record("BPE with fuse_unk", Tokenizer(BPE(bpe, merges, unk_token="<unk>", fuse_unk=True)), BPE_TEXTS)
fallback = bpe | {f"<0x{byte:02X}>": 20 + i for i, byte in enumerate("é".encode())}
record("BPE with byte_fallback", Tokenizer(BPE(fallback, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)), BPE_TEXTS)
record("BPE with ignore_merges", Tokenizer(BPE(bpe | {"abcd": 30}, merges, ignore_merges=True)), BPE_TEXTS)
prefixed = {c: i for i, c in enumerate("a b ##a ##b ab ab##a ##ba aba".split())}
record("BPE with continuing_subword_prefix",
       Tokenizer(BPE(prefixed, [("a", "##b"), ("##b", "##a"), ("ab", "##a")], continuing_subword_prefix="##")), ["aba", "ab", "ba", "abab"])
suffixed = {c: i for i, c in enumerate("<unk> a b b</w> ab</w> a</w>".split())}
record("BPE with end_of_word_suffix", Tokenizer(BPE(suffixed, [("a", "b</w>")], unk_token="<unk>", end_of_word_suffix="</w>")), ["ab", "ba", "abab", "c"])

pieces = {w: i for i, w in enumerate("[UNK] un ##aff ##able a ##a 漢 ##字 ##".split())}
word_piece = Tokenizer(WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=12))
word_piece.pre_tokenizer = p.BertPreTokenizer()
word_piece.decoder = decoders.WordPiece()
record("WordPiece", word_piece, ["unaffable", "unaffablex", "aaaa a", "aaaaaaaaaaaa", "aaaaaaaaaaaaa", "漢字 un", "", "un."])

scores = [("<unk>", 0.0), ("▁", -2.0), ("a", -1.0), ("ab", -1.5), ("b", -1.2), ("abc", -5.0), ("c", -3.5), ("▁a", -2.5), ("é", -4.0)]
record("Unigram", Tokenizer(Unigram(scores, 0)), ["abc", "▁abc", "xyab", "aéx", "", "zz", "a<unk>b"])
byte_scores = scores + [(f"<0x{byte:02X}>", 0.0) for byte in "xyz".encode()]
# Two segmentations whose sums are bitwise identical if each score is parsed from its shortest digits.
equal = [("<unk>", 0.0), ("a", -7.37980081240593), ("b", -1.0), ("ab", -8.37980081240593)]
record("Unigram with equal ways", Tokenizer(Unigram(equal, 0)), ["ab", "abab", "ba"])
record("Unigram with byte_fallback", Tokenizer(Unigram(byte_scores, 0, True)), ["abc", "xyab", "aéx", "zz", "aqb"])

precompiled = with_words(n.Precompiled(charsmap()), p.WhitespaceSplit(), ["x① ａ", "①\u0301y", "\x07a\x07", "①①", "\r\na"])
record("Precompiled", precompiled, ["x① ａ", "①\u0301y", "\x07a\x07", "①①", "\r\na"])

words = {w: i for i, w in enumerate("<unk> <s> </s> [M] a b c new".split())}


def with_added(*tokens, lowercase=False):
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = p.Whitespace()
    if lowercase:
        tokenizer.normalizer = n.Lowercase()
    tokenizer.add_tokens(list(tokens))
    return tokenizer


ADDED_TEXTS = ["a [M] b", "a[M]b", "a  [M]  b", "aNEWb NEW", "new NEW New", "[M][M]", " [M]", "a [M"]
record("added tokens", with_added(AddedToken("[M]", normalized=False), AddedToken("NEW", normalized=False)), ADDED_TEXTS)
record("lstrip", with_added(AddedToken("[M]", lstrip=True, normalized=False)), ADDED_TEXTS)
record("rstrip", with_added(AddedToken("[M]", rstrip=True, normalized=False)), ADDED_TEXTS)
record("single_word", with_added(AddedToken("NEW", single_word=True, normalized=False), AddedToken("[M]", single_word=True)), ADDED_TEXTS)
record("normalized", with_added(AddedToken("NEW", normalized=True), lowercase=True), ADDED_TEXTS)
SPACED_TEXTS = ["a   b", "[M]  \n b", "a \n\n [M]\nb", " ", "\n \n"]
RUN_TEXTS = ["     ", "   a   ", "a   [M]   b", "\t \t  [M] \u3000 b"]
record("spaces as tokens", with_added(AddedToken(" ", lstrip=True, rstrip=True, normalized=False)), SPACED_TEXTS)
record("spaces taken by the token before", with_added(AddedToken("[M]", rstrip=True, normalized=False), AddedToken("\n", normalized=False)), SPACED_TEXTS)
record("spaces taken twice", with_added(AddedToken("\n", lstrip=True, rstrip=True, normalized=True)), SPACED_TEXTS)
record("a space with lstrip", with_added(AddedToken(" ", lstrip=True, normalized=False), AddedToken("[M]", lstrip=True, normalized=False)), RUN_TEXTS)
record("a space with rstrip", with_added(AddedToken(" ", rstrip=True, normalized=False), AddedToken("[M]", rstrip=True, normalized=False)), RUN_TEXTS)
record("longest first", with_added(AddedToken("NE", normalized=False), AddedToken("NEW", normalized=False), AddedToken("N", normalized=False)), ADDED_TEXTS)


def around(processor, **_):
    tokenizer = with_added()
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.post_processor = processor
    return tokenizer


AROUND = ["a b c", "", "a", "a b a b a b a b"]
template = processors.TemplateProcessing(single="<s> $A </s>", pair="<s>:0 $B:2 </s>:1 $A:3", special_tokens=[("<s>", 1), ("</s>", 2)])
record("TemplateProcessing", around(template), AROUND)
record("BertProcessing", around(processors.BertProcessing(("</s>", 2), ("<s>", 1))), AROUND)
record("RobertaProcessing", around(processors.RobertaProcessing(("</s>", 2), ("<s>", 1))), AROUND)
record("ByteLevel processor", around(processors.ByteLevel()), AROUND)
record("Sequence of processors", around(processors.Sequence([processors.ByteLevel(), template])), AROUND)
for strategy in ("longest_first", "only_first", "only_second"):
    for direction in ("left", "right"):
        cut = around(template)
        cut.enable_truncation(4 if strategy == "longest_first" else 5, strategy=strategy, direction=direction)
        record(f"truncation {strategy} {direction}", cut, {"only_first": ["a b a b a"], "only_second": [""]}.get(strategy, AROUND)
               if strategy != "only_second" else [])
for options in ({"length": 6}, {"pad_to_multiple_of": 4}, {"length": 6, "direction": "left", "pad_id": 3, "pad_type_id": 7}):
    padded = around(template)
    padded.enable_padding(**options)
    record(f"padding {options}", padded, AROUND)

DECODED = ["a", "##b", "b</w>", "▁c", "<0xC3>", "<0xA9>", "<0xff>", "Ġa", "Ã©", "Ã", ".", "n't", "!!x!!", "|", "<pad>", "do not", "' "]
for name, decoder in {
    "ByteLevel": decoders.ByteLevel(), "WordPiece": decoders.WordPiece(), "WordPiece uncleaned": decoders.WordPiece(cleanup=False),
    "Metaspace": decoders.Metaspace(), "Metaspace never": decoders.Metaspace(prepend_scheme="never"), "BPEDecoder": decoders.BPEDecoder(),
    "ByteFallback": decoders.ByteFallback(), "Fuse": decoders.Sequence([decoders.Fuse(), decoders.Replace("a", "A")]),
    "Strip": decoders.Strip("!", 1, 3), "Replace": decoders.Replace("a", "_"), "Replace a pattern": decoders.Replace(Regex("[ab]"), "."),
    "CTC": decoders.CTC(), "none": None,
}.items():
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(["<unk>", *DECODED])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = p.Split("\x01", "removed")
    if decoder:
        tokenizer.decoder = decoder
    record(f"decoder {name}", tokenizer, ["\x01".join(DECODED), "\x01".join(reversed(DECODED)), "|\x01|\x01a\x01a\x01<pad>\x01a", "##b", "▁c"])

path = pathlib.Path(__file__).with_name("huggingface_tokenizer.json")
lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
path.write_text(f"[\n{lines}\n]\n")
print(len(cases), "cases,", path.stat().st_size, "bytes")
