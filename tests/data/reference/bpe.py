#!/usr/bin/env python3
"""Makes what data/bpe_test.cpp compares with: a small vocabulary, and what other programs encode with it.

  python3 tests/data/reference/bpe.py        needs the packages tiktoken, tokenizers and regex, and bible-kjv-text

Writes bpe.tiktoken, vocab.json and merges.txt (512 tokens, learnt from the beginning of the King James Bible) and
bpe.json: texts, their words by GPT-2's pattern (package regex) and their tokens (packages tiktoken and tokenizers,
which must agree).
"""
import base64
import collections
import json
import subprocess
from pathlib import Path

import regex
import tiktoken
import tokenizers

HERE = Path(__file__).resolve().parent
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def byte_characters():
    """Byte to the character that GPT-2's files write it as, in the order of GPT-2's numbers."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def learn(text, most):
    """Pairs in the order in which byte-pair encoding joins them: the most frequent first."""
    words = collections.Counter(tuple(bytes([b]) for b in word.encode()) for word in regex.findall(PATTERN, text))
    pairs = []
    while len(pairs) < most:
        counts = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] += count
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        pairs.append(best)
        joined = collections.Counter()
        for word, count in words.items():
            parts, i = [], 0
            while i < len(word):
                is_best = word[i:i + 2] == best
                parts.append(b"".join(best) if is_best else word[i])
                i += 2 if is_best else 1
            joined[tuple(parts)] += count
        words = joined
    return pairs


TEXTS = [
    "In the beginning God created the heaven and the earth.", "", " ", "  ", "\n", "a", " a", "  a", "a ", "a  \n", "\n\na",
    "\t\tthe  LORD   said\n\n\nunto Moses \n", "don't I'll you've we're he'd I'm it's 'tis 'S DON'T", "'sun 'llama ''s '",
    "Ge1:1 3,14 1611 12ab34", "!!! ... ?! (and) [the] {LORD} #$%&*", "naïve café Ünïcödé straße", "Привет мир 中文字符 日本語 한국어",
    "مرحبا ٣٤٥ १२३ ½ ² Ⅷ", "e\u0301 a\u0308\u0323 \u00a0the\u00a0LORD \u2003wide \u3000ideographic \u200bzero", "😀😃 the 👨‍👩‍👧 end",
    "\u0085next\u2028line\u2029par\x1c\x1d\x1e\x1f\x0b\x0c", "\x00\x01\x7f", "a" * 300, "th" * 150, " " * 50 + "the", "the\r\nLORD\r\n",
    "\U00020000\U0001d7d8\U0001f130\U000e0001",
]


def main():
    data = Path("/usr/lib/bible.data").read_bytes()
    start = data.index(b"\x1f\x9d")
    bible = subprocess.run(["gzip", "-dc"], input=data[start:], stdout=subprocess.PIPE, check=True).stdout.decode()
    pairs = learn(bible[:200_000], 256)
    characters = byte_characters()

    def written(token):
        return "".join(characters[byte] for byte in token)

    tokens = [bytes([byte]) for byte in characters] + [left + right for left, right in pairs]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    assert len(ranks) == 512
    (HERE / "bpe.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()))
    (HERE / "vocab.json").write_text(json.dumps({written(t): r for t, r in ranks.items()} | {"<|endoftext|>": 512}))
    (HERE / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(f"{written(left)} {written(right)}\n" for left, right in pairs), encoding="utf-8")

    one = tiktoken.Encoding("bpe", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    other = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(HERE / "vocab.json"), str(HERE / "merges.txt")))
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    cases = []
    for text in [*TEXTS, bible[:3000]]:
        encoded = one.encode_ordinary(text)
        assert encoded == other.encode(text).ids, text
        cases.append({"text": text, "words": regex.findall(PATTERN, text), "tokens": encoded})
    (HERE / "bpe.json").write_text(json.dumps(cases, indent=None).replace('}, {', '},\n{') + "\n")


main()
