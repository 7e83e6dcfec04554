#!/usr/bin/env python3
"""Makes bpe_cl100k.json, which data/bpe_test.cpp compares with: texts, their words by the pattern of cl100k_base
(package regex) and their tokens (package tiktoken, with the small vocabulary of bpe.tiktoken).

  python3 tests/data/reference/bpe_cl100k.py        needs the packages tiktoken and regex
"""
import base64
import json
from pathlib import Path

import regex
import tiktoken

HERE = Path(__file__).resolve().parent
# tiktoken 0.14, tiktoken_ext/openai_public.py
PATTERN = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"""
           r"""\s+(?!\S)|\s""")

TEXTS = [
    "I'M DON'T they'LL we'Ve you'RE 'S 'lL 'rE 'l 'v' ''s 's 'é '", "'\u017fo it'\u017f '\u017e", "12345678 1,234 ½²345 ٣٤٥٦ x1y22",
    "word\r\n\r\n next\r\n", "!!!\n\n\nfoo ...\r\n\r\n bar?\n", "   \n   \n  x", "foo\n", "foo  \n ", "foo \t", "\r\rx", "\n \n\t y",
    "\u00a0\u00a0x \u3000\u3000y\u2003z", ".hello -world (x) _y $5 %%% -\n", "x \u0085 y\u2028\u2028z", "\tint main() {\n\t\treturn 0;\n\t}\n",
    " \U0001f600\U0001f600 a\U0001f600b", "a\u0301\u0302b  \u0301c", "  12  ab  !?  ", "'", "''", "' s", "'s", "\n", "\r\n", " \n", "\n ",
]


def main():
    lines = (HERE / "bpe.tiktoken").read_text().split("\n")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    one = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    texts = [case["text"] for case in json.loads((HERE / "bpe.json").read_text())] + TEXTS
    cases = [{"text": text, "words": regex.findall(PATTERN, text), "tokens": one.encode_ordinary(text)} for text in texts]
    (HERE / "bpe_cl100k.json").write_text(json.dumps(cases).replace("}, {", "},\n{") + "\n")


main()
