#include "levin/data/text/huggingface_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/text/make_tokenizer.h"
#include "levin/data/text/sentence_piece.h"
#include "levin/data/tokenizers/pattern.h"
#include "levin/data/tokenizers/unicode.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::huggingface_tokenizer_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Recorded by reference/huggingface_tokenizer.py with the package tokenizers.
const json& recorded() {
  static const json cases =
      json::parse(read_file(test::source_dir() + "/tests/data/reference/huggingface_tokenizer.json"));
  return cases;
}

json tokenizer_of(const std::string& name) {
  for (const json& one : recorded()) {
    if (one["name"] == name) return one["tokenizer"];
  }
  throw Error("no case " + name);
}

using Row = std::vector<int32_t>;
Row row_of(const json& row, const char* name) {
  return row[name].get<Row>();
}
std::vector<int64_t> wide(const Row& ids) {
  return {ids.begin(), ids.end()};
}

HuggingFaceTokenizer read(const json& tree) {
  return HuggingFaceTokenizer(tree.dump(), "tokenizer.json");
}
std::string mistakes(const json& tree) {
  return error_of<DataError>([&] { (void)read(tree); });
}

TEST(HuggingFaceTokenizer, GivesThePackagesTokensForEachBehaviour) {
  for (const json& one : recorded()) {
    const HuggingFaceTokenizer tokenizer = read(one["tokenizer"]);
    for (const json& row : one["rows"]) {
      const auto text = row["text"].get<std::string>();
      const std::string where = one["name"].get<std::string>() + ": " + row["text"].dump();
      const Encoding encoding = tokenizer.encode(text, true), pair = tokenizer.encode_pair(text, "b c");
      EXPECT_EQ(encoding.ids, row_of(row, "ids")) << where;
      EXPECT_EQ(encoding.type_ids, row_of(row, "type_ids")) << where;
      EXPECT_EQ(encoding.attention_mask, row_of(row, "attention_mask")) << where;
      EXPECT_EQ(encoding.special_tokens_mask, row_of(row, "special_tokens_mask")) << where;
      EXPECT_EQ(pair.ids, row_of(row, "pair_ids")) << where;
      EXPECT_EQ(pair.type_ids, row_of(row, "pair_type_ids")) << where;
      const std::vector<int64_t> ids = wide(row_of(row, "ids"));
      EXPECT_EQ(tokenizer.decode(ids), row["decoded"].get<std::string>()) << where;
      EXPECT_EQ(tokenizer.decode(ids, false), row["decoded_with_special_tokens"].get<std::string>()) << where;
    }
  }
}

TEST(HuggingFaceTokenizer, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(tokenizers::valid_utf8("a\xff\xe2\x82z\xf0\x9f\x98\xc0\xaf\xed\xa0\x80"),
            "a\ufffd\ufffdz\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  const HuggingFaceTokenizer tokenizer = read(tokenizer_of("ByteLevel"));
  EXPECT_EQ(tokenizer.encode("a\xff"), tokenizer.encode("a\ufffd"));
}

TEST(HuggingFaceTokenizer, KeepsSpecialTokensTruncationAndPaddingOutOfThePlainTokens) {
  json tree = tokenizer_of("TemplateProcessing");
  tree["truncation"] = {{"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  const HuggingFaceTokenizer tokenizer = read(tree);
  EXPECT_EQ(tokenizer.encode("a b c"), (Row{4, 5, 6}));
  EXPECT_EQ(tokenizer.encode("a b c", true).ids, (Row{1, 4, 2}));
  EXPECT_EQ(tokenizer.encode("a b c", false).ids, (Row{4, 5, 6}));
  EXPECT_EQ(tokenizer.encode_to("a b c", 4), (Row{1, 4, 5, 2}));
}

TEST(HuggingFaceTokenizer, PadsABatchToItsLongest) {
  json tree = tokenizer_of("TemplateProcessing");
  tree["padding"] = {{"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_id", 3},
                     {"pad_type_id", 0},           {"pad_token", "[M]"},   {"pad_to_multiple_of", nullptr}};
  const std::vector<std::string> texts = {"a", "a b c"};
  const auto batch = read(tree).encode_batch(texts);
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_EQ(batch[0].ids, (Row{1, 4, 2, 3, 3}));
  EXPECT_EQ(batch[0].attention_mask, (Row{1, 1, 1, 0, 0}));
  EXPECT_EQ(batch[1].ids, (Row{1, 4, 5, 6, 2}));
}

TEST(HuggingFaceTokenizer, ConvertsTokensAndIds) {
  const HuggingFaceTokenizer tokenizer = read(tokenizer_of("added tokens"));
  EXPECT_EQ(tokenizer.vocab_size(), 9) << "8 words and NEW";
  EXPECT_EQ(tokenizer.token_to_id("a"), 4);
  EXPECT_EQ(tokenizer.token_to_id("NEW"), 8);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(8), "NEW");
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(9), std::nullopt);
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      (void)tokenizer.decode(std::vector<int64_t>{4, 9});
                    }),
                    {"tokenizer.json: token 1: expected an id of the 9 tokens, saw 9"}));
}

TEST(HuggingFaceTokenizer, IsFoundByFolderAndKnowsTheNamesOfSpecialTokens) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", tokenizer_of("TemplateProcessing").dump());
  folder.write("special_tokens_map.json", R"({"bos_token": "<s>", "pad_token": "a"})");
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "[M]"})");
  const HuggingFaceTokenizer tokenizer(folder.path());
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), 3);
  EXPECT_EQ(tokenizer.named_id("mask_token"), std::nullopt);
  EXPECT_EQ(make_tokenizer(folder.path())->encode("a b"), (Row{4, 5}));
  EXPECT_EQ(make_tokenizer(folder / "tokenizer.json")->encode("a b"), (Row{4, 5}));
  const auto for_rows = make_sequence_tokenizer(folder.path());
  EXPECT_EQ(encode_sequence(*for_rows, "a b c", 4), (Row{1, 4, 5, 2}));
  EXPECT_EQ(pad_token(*for_rows), 3);
  folder.write("special_tokens_map.json", "{}");
  folder.write("tokenizer_config.json", "{}");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)pad_token(*make_sequence_tokenizer(folder.path())); }),
                    {"no pad_token", "special_tokens_map.json"}));
  folder.write("tokenizer_config.json", "[]");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)make_tokenizer(folder.path()); }),
                    {"tokenizer_config.json: expected a JSON object of special tokens"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)make_tokenizer(folder / "none.json"); }), {"none.json"}));
}

// As transformers: tokenizer_config.json takes precedence over tokenizer.json.
TEST(HuggingFaceTokenizer, CutsOnTheSideThatTheFolderNames) {
  const TemporaryFolder folder;
  const auto cut = [&](const char* in_tokenizer, const std::string& config) {
    json tree = tokenizer_of("TemplateProcessing");
    if (in_tokenizer != nullptr) {
      tree["truncation"] = {
          {"direction", in_tokenizer}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
    }
    folder.write("tokenizer.json", tree.dump());
    folder.write("tokenizer_config.json", config);
    return HuggingFaceTokenizer(folder.path()).encode_to("a b c", 4);
  };
  const Row right = {1, 4, 5, 2}, left = {1, 5, 6, 2};
  EXPECT_EQ(cut(nullptr, "{}"), right);
  EXPECT_EQ(cut(nullptr, R"({"truncation_side": "left"})"), left);
  EXPECT_EQ(cut("Left", "{}"), left);
  EXPECT_EQ(cut("Left", R"({"truncation_side": "right"})"), right);
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)cut(nullptr, R"({"truncation_side": "up"})"); }),
                    {"tokenizer_config.json: truncation_side: expected left or right, saw up."}));
}

// Python's json.dump writes an emoji as two escapes.
TEST(HuggingFaceTokenizer, ReadsEscapedSurrogates) {
  const std::string text =
      R"({"model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "\ud83d\ude00": 1}},
    "added_tokens": [{"id": 2, "content": "\ud83e\udd17", "special": true}],
    "normalizer": {"type": "Replace", "pattern": {"Regex": "[\ud83d\ude01-\ud83d\ude04]"}, "content": "\ud83d\ude00"}})";
  const HuggingFaceTokenizer tokenizer(text, "tokenizer.json");
  EXPECT_EQ(tokenizer.encode("\U0001f600"), (Row{1}));
  EXPECT_EQ(tokenizer.encode("\U0001f602\U0001f917"), (Row{1, 2}));
}

TEST(HuggingFaceTokenizer, IsUsedBySeveralThreads) {
  const HuggingFaceTokenizer tokenizer = read(tokenizer_of("BPE with fuse_unk"));
  const std::string text = "abcd aabbcd axxb abxcd";
  const Row expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.encode(text) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

TEST(HuggingFaceTokenizer, ForgetsWordsThatAreTooMany) {
  const HuggingFaceTokenizer tokenizer = read(tokenizer_of("ByteLevel"));
  std::string text;
  for (int i = 0; i < 70'000; ++i) text += " it " + std::to_string(i);
  const Row ids = tokenizer.encode(text);
  EXPECT_EQ(ids.size(), 140'000U);
  EXPECT_EQ(tokenizer.encode(text), ids);
}

TEST(HuggingFaceTokenizer, ListsAllThatIsNotSupported) {
  json tree = tokenizer_of("TemplateProcessing");
  tree["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Cyrillic"}}}}};
  tree["pre_tokenizer"] = {{"type", "Latin"}};
  tree["post_processor"] = {{"type", "Other"}};
  tree["decoder"] = {{"type", "Cyrillic"}};
  EXPECT_TRUE(holds(mistakes(tree), {"tokenizer.json: the tokenizer cannot be used:",
                                     "normalizer.normalizers[1].type: the normalizer Cyrillic is not supported.",
                                     "pre_tokenizer.type: the pre-tokenizer Latin is not supported.",
                                     "post_processor.type: the post-processor Other is not supported.",
                                     "decoder.type: the decoder Cyrillic is not supported."}));
  tree["model"]["type"] = "Other";
  EXPECT_TRUE(holds(mistakes(tree), {"model.type: the model Other is not supported. Known: BPE"}));
}

TEST(HuggingFaceTokenizer, NamesThePlaceOfAMistake) {
  const auto text_error = [](const std::string& text) {
    return error_of<DataError>([&] { HuggingFaceTokenizer(text, "tokenizer.json"); });
  };
  EXPECT_TRUE(holds(text_error("{\"model\": "), {"tokenizer.json: expected the JSON of a tokenizer", "parse error"}));
  EXPECT_TRUE(holds(text_error("[]"), {"an object with a model"}));

  const json words = tokenizer_of("TemplateProcessing"), bpe = tokenizer_of("BPE"), pieces = tokenizer_of("Unigram");
  const auto with = [](json tree, const char* path, const json& value) {
    tree[json::json_pointer(path)] = value;
    return mistakes(tree);
  };
  EXPECT_TRUE(holds(with(words, "/model/vocab", json::array()), {"model.vocab: expected an object of tokens"}));
  EXPECT_TRUE(holds(with(words, "/model/vocab/a", -1), {"model.vocab: token a: expected an id from 0", "saw -1"}));
  EXPECT_TRUE(holds(with(words, "/model/vocab/a", 1 << 30), {"token a: expected an id from 0", "saw 1073741824"}));
  EXPECT_TRUE(holds(with(words, "/model/vocab/a", 5), {"model.vocab: two tokens have the id 5: a and b."}));
  EXPECT_TRUE(holds(with(words, "/model/unk_token", 3), {"model.unk_token: expected a string, saw 3."}));
  EXPECT_TRUE(holds(with(bpe, "/model/merges/0", "a q"), {"model.merges[0]: the token q is not in model.vocab."}));
  EXPECT_TRUE(holds(with(bpe, "/model/merges/1", {"a"}), {"model.merges[1]: expected two tokens", "array of 1"}));
  EXPECT_TRUE(holds(with(bpe, "/model/dropout", 0.1), {"model.dropout: only 0 or null is supported"}));
  EXPECT_TRUE(holds(with(bpe, "/model/fuse_unk", "yes"), {"model.fuse_unk: expected true or false, saw \"yes\"."}));
  EXPECT_TRUE(holds(with(pieces, "/model/vocab/1", {"a"}), {"model.vocab[1]: expected a token and its score"}));
  EXPECT_TRUE(holds(with(pieces, "/model/unk_id", 99), {"model.unk_id: expected a number from 0 to 8, saw 99."}));
  EXPECT_TRUE(holds(with(words, "/added_tokens/0/id", 4), {"added_tokens[0]: model.vocab has <unk> with the id 0"}));
  EXPECT_TRUE(holds(with(words, "/added_tokens/0/content", "q"), {"the id 0 of q belongs to <unk> in model.vocab."}));
  EXPECT_TRUE(holds(with(words, "/added_tokens/1", words["added_tokens"][0]), {"added_tokens[1]: another added"}));
  EXPECT_TRUE(holds(with(words, "/post_processor/special_tokens", json::object()),
                    {"SpecialToken.id: the token <s> is not in post_processor.special_tokens."}));
  EXPECT_TRUE(holds(with(words, "/truncation", {{"max_length", 3}, {"strategy", "Some"}}),
                    {"truncation.strategy: expected LongestFirst, OnlyFirst or OnlySecond"}));
  EXPECT_TRUE(holds(with(words, "/padding", {{"strategy", 5}}), {"padding.strategy: expected BatchLongest"}));
  EXPECT_TRUE(
      holds(with(words, "/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}}),
            {"pre_tokenizer.pattern.Regex: the pattern (a has an error: end pattern with unmatched parenthesis"}));
  EXPECT_TRUE(holds(with(words, "/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}),
                    {"pre_tokenizer.replacement: expected one character, saw \"ab\"."}));
  EXPECT_TRUE(holds(with(words, "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}),
                    {"normalizer.precompiled_charsmap: expected sentencepiece's map in base64"}));
}

TEST(HuggingFaceTokenizer, NamesATextThatItsVocabularyCannotHold) {
  json tree = tokenizer_of("TemplateProcessing");
  tree["model"]["unk_token"] = "[none]";
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read(tree).encode("z"); }), {"unk_token [none]", "model.vocab"}));
  tree = tokenizer_of("TemplateProcessing");
  tree["truncation"] = {{"max_length", 3}, {"strategy", "OnlySecond"}};
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read(tree).encode("a b c", true); }),
                    {"truncation: 2 tokens are too many", "only the second text may be cut, which has 0"}));
}

TEST(HuggingFaceTokenizer, StaysInTheMapOfAPrecompiledNormalizer) {
  json tree = tokenizer_of("Precompiled");
  auto map = tree["normalizer"]["precompiled_charsmap"].get<std::string>();
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = map;
    for (int k = 0; k < 4; ++k) damaged[6 + random() % (damaged.size() - 10)] = "ABCDwxyz0189+/"[random() % 14];
    tree["normalizer"]["precompiled_charsmap"] = damaged;
    try {
      (void)read(tree).encode("x\u2460 \uff41 \x07 abc");
    } catch (const DataError&) {  // the only one it may throw
    }
  }
}

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  const tokenizers::Regex regex(pattern);
  auto budget = tokenizers::Budget::of_text(text.size());
  std::vector<std::string> found;
  const auto find = [&](std::string_view in, size_t from, tokenizers::Regex::Match& match) {
    return regex.find(in, from, match, budget);
  };
  tokenizers::for_each_match(text, find,
                             [&](size_t begin, size_t end) { found.push_back(text.substr(begin, end - begin)); });
  return found;
}

// The expected matches follow from Oniguruma's description of its syntax, doc/RE.
TEST(Regex, HasOnigurumasSyntax) {
  using Found = std::vector<std::string>;
  EXPECT_EQ(matches("[^a[bc]]", "abxc"), Found{"x"});
  EXPECT_EQ(matches("[a-w&&[^c-g]z]", "abcghz"), (Found{"a", "b", "h"}));
  EXPECT_EQ(matches("[a&&]", "a&"), Found{});
  EXPECT_EQ(matches("[[a]-z]+", "a-z b"), Found{"a-z"});
  EXPECT_EQ(matches("[[:a]]+", "a:b"), Found{"a:"});
  EXPECT_EQ(matches("[\\w-]+", "a-b c"), (Found{"a-b", "c"}));
  EXPECT_EQ(matches("a{2}+", "aaaaa"), Found{"aaaa"}) << "repeats the repetition";
  EXPECT_EQ(matches("\\p{N}{1,3}+", "1234567"), Found{"1234567"});
  EXPECT_EQ(matches("a{,2}b", "aaab"), Found{"aab"});
  EXPECT_EQ(matches("\\h+", "xBeef9g"), Found{"Beef9"});
  EXPECT_EQ(matches("a.b", "a\nb"), Found{});
  EXPECT_EQ(matches("(?m:a.b)", "a\nb"), Found{"a\nb"});
  EXPECT_EQ(matches("^b$", "a\nb\nc"), Found{"b"});
  EXPECT_EQ(matches("(?i)stra\u00dfe", "STRASSE"), Found{"STRASSE"}) << "one character may match two";
  EXPECT_EQ(matches("(?<=a+)b", "aab b"), Found{"b"});
  EXPECT_EQ(matches("[[:graph:]]+", "a b"), (Found{"a", "b"}));
  EXPECT_EQ(matches("[[:punct:]]+", "a$\u20ac!b"), Found{"$\u20ac!"}) << "symbols too";
  EXPECT_EQ(matches("[[:^punct:]]+|[]x]", "a\u20ac]"), (Found{"a", "]"}));
  EXPECT_EQ(matches("[:punct:]", "!p"), Found{"p"}) << "a set of letters and a colon";
  EXPECT_EQ(matches("(?~ab)", "xxab"), (Found{"xx", "b"})) << "the longest text without ab";
  EXPECT_EQ(matches("\\Ga", "aaba"), (Found{"a", "a"})) << "where the match before ended";
  EXPECT_EQ(matches("\\p{Greek}", "a\u03b1"), Found{"\u03b1"});
  EXPECT_EQ(matches("(?<n>a)\\k<n>", "aab"), Found{"aa"});
}

// In long text with few matches, attempts are made one by one.
TEST(Regex, FindsMatchesInALongText) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "abcde " + std::string(static_cast<size_t>(i % 3), 'x');
  EXPECT_EQ(matches("[a-x]+(?=xx)x", text).size(), 0U);
  EXPECT_EQ(matches("[a-e]+ xx", text).size(), 6666U);
  EXPECT_EQ(matches("\\Gabcde ", text).size(), 2U);
  EXPECT_EQ(matches("\\w+ ", text).size(), 20'000U);
}

TEST(Regex, NamesThePatternAndItsError) {
  const auto error = [](const std::string& pattern) {
    return error_of<Error>([&] { (void)tokenizers::Regex(pattern); });
  };
  for (const char* pattern :
       {"[[:foo:]]", "[a[b]", "(*SKIP)", "(?{a})", "a\\", "[a", "a)", "(a", "\\u12", "\\p{Foo}", "(a)\\2", "[b-a]"}) {
    EXPECT_TRUE(holds(error(pattern), {std::string("the pattern ") + pattern + " has an error: "})) << pattern;
  }
  for (const char* pattern : {"[\\w-z]", "[\\w-\\d]", "[^\\W--z]", "[\\p{L}-[a]]", "[[:alpha:]-z]"}) {
    EXPECT_TRUE(holds(error(pattern), {"unmatched range specifier in char-class"})) << pattern;
  }
  const size_t depth = 1000;
  EXPECT_TRUE(holds(error(std::string(depth, '(') + std::string(depth, ')')), {"parse depth limit over"}));
}

}  // namespace
}  // namespace levin::huggingface_tokenizer_test
