// tokenizer.json and vocabularies that are made to harm: an error, in little time and memory.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/text/bpe.h"
#include "levin/data/text/huggingface_tokenizer.h"
#include "levin/data/text/make_tokenizer.h"
#include "support/error_text.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"

namespace levin::hostile_tokenizer_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

HuggingFaceTokenizer with_normalizer(const json& normalizer) {
  const json tree = {{"model", {{"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {"a", 1}}}, {"unk_token", "<unk>"}}},
                     {"normalizer", normalizer},
                     {"added_tokens", {{{"id", 2}, {"content", "b"}, {"single_word", true}, {"normalized", true}}}}};
  return HuggingFaceTokenizer(tree.dump(), "tokenizer.json");
}

std::string base64(const std::string& bytes) {
  std::string code((bytes.size() + 2) / 3 * 4, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(code.data()), reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  return code;
}

// A map in sentencepiece's form that replaces "a" by its strings from `begin` on.
std::string map_of_a(uint32_t begin, const std::string& texts) {
  std::vector<uint32_t> trie(256, 0);
  trie[0] = 1U << 10;                                   // the nodes of first characters are around 1
  trie[1 ^ 'a'] = (1U << 10) | 0x100U | uint32_t{'a'};  // its value is in the next unit
  trie[1 ^ 'a' ^ 1] = 0x80000000U | begin;
  const auto size = static_cast<uint32_t>(trie.size() * sizeof(uint32_t));
  std::string bytes(sizeof size + size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, trie.data(), size);
  return base64(bytes + texts);
}

TEST(HostileTokenizer, NestsNoDeeperThanAHundredLists) {
  const TemporaryFolder folder;
  const std::string deep = nested(1'000'000);
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      HuggingFaceTokenizer("{\"model\": {\"vocab\": {\"a\": " + deep + "}}}", "tokenizer.json");
                    }),
                    {"tokenizer.json: expected the JSON of a tokenizer", "more than 100 lists and objects"}));
  folder.write("vocab.json", "{\"a\": " + deep + "}");
  folder.write("merges.txt", "");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)make_tokenizer(folder.path()); }),
                    {"vocab.json: expected a JSON object of tokens"}));
}

TEST(HostileTokenizer, MapsCharactersToWholeCharacters) {
  const std::string texts = std::string("a", 2) + std::string("\u00e4", 3);  // at 0 and 2
  const auto map = [&](uint32_t begin) {
    return json{{"type", "Precompiled"}, {"precompiled_charsmap", map_of_a(begin, texts)}};
  };
  EXPECT_EQ(with_normalizer(map(0)).encode("a"), (std::vector<int32_t>{1}));
  EXPECT_EQ(with_normalizer(map(2)).encode("a"), (std::vector<int32_t>{0}));
  // From the middle of a character on, the text would begin with no character.
  for (const json& other : {json{{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, json()}) {
    json normalizer = map(3);
    if (!other.is_null()) normalizer = {{"type", "Sequence"}, {"normalizers", {map(3), other}}};
    EXPECT_TRUE(holds(error_of<DataError>([&] { (void)with_normalizer(normalizer).encode("ab"); }),
                      {"precompiled_charsmap: an entry points outside of the map", "The file is damaged"}));
  }
}

// A word-level tokenizer with one part changed: {"normalizer", …}.
HuggingFaceTokenizer with(const json& changes) {
  json tree = {{"model", {{"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {"a", 1}}}, {"unk_token", "<unk>"}}},
               {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
  tree.update(changes);
  return HuggingFaceTokenizer(tree.dump(), "tokenizer.json");
}

// Returns the error of encoding `text`, which must appear within `max_seconds`.
std::string refusal(const json& changes, const std::string& text, double max_seconds = 5) {
  const std::clock_t start = std::clock();
  const std::string error = error_of<DataError>([&] { (void)with(changes).encode(text, true); });
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC,
            test::kSanitized ? 10 * max_seconds : max_seconds);
  return error;
}

json repeated(const json& element, size_t times) {
  json array = json::array();
  for (size_t i = 0; i < times; ++i) array.push_back(element);
  return array;
}

TEST(HostileTokenizer, MakesNoTextManyTimesAsLong) {
  const json tenfold = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10, 'a')}};
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json long_map = {{"type", "Precompiled"}, {"precompiled_charsmap", map_of_a(0, std::string(1'000'000, 'c'))}};
  const json prefix = {{"type", "Prepend"}, {"prepend", std::string(100'000, 'c')}};
  const std::string words(40, 'a');
  for (const json& normalizer : {json{{"type", "Sequence"}, {"normalizers", repeated(tenfold, 12)}}, long_map}) {
    EXPECT_TRUE(holds(refusal({{"normalizer", normalizer}}, words),
                      {"tokenizer.json: 40 bytes of text would become more than 1049216 bytes of text",
                       "Fix what the file's normalizer, pre-tokenizer or decoder inserts"}));
  }
  for (const size_t times : {24, 40}) {
    EXPECT_TRUE(
        holds(refusal({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", repeated(byte_level, times)}}}},
                      "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"),
              {"20 bytes of text would become more than 1048896 bytes of text"}));
  }
  // The parts between added tokens draw on one budget.
  const json token = {{"id", 2}, {"content", "b"}, {"special", true}};
  std::string parts;
  for (int i = 0; i < 20; ++i) parts += "ab";
  EXPECT_TRUE(holds(refusal({{"normalizer", prefix}, {"added_tokens", {token}}}, parts), {"40 bytes of text would"}));
  // So do the added tokens themselves.
  json tokens = json::array();
  for (int i = 0; i < 100; ++i) tokens.push_back({{"id", 2 + i}, {"content", "b" + std::to_string(i)}});
  EXPECT_TRUE(holds(refusal({{"normalizer", prefix}, {"added_tokens", tokens}}, ""),
                    {"bytes of a file with added tokens would become more than"}));
  // A short text may become a megabyte.
  const json long_one = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(900'000, 'c')}};
  EXPECT_EQ(with_normalizer(long_one).encode("a"), (std::vector<int32_t>{0}));
}

TEST(HostileTokenizer, MakesNoTextManyTokens) {
  const auto processor = [](const json& single, const json& ids) {
    return json{{"post_processor",
                 {{"type", "TemplateProcessing"},
                  {"single", single},
                  {"pair", json::array()},
                  {"special_tokens", {{"s", {{"id", "s"}, {"ids", ids}, {"tokens", json::array()}}}}}}}};
  };
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json special = {{"SpecialToken", {{"id", "s"}, {"type_id", 0}}}};
  EXPECT_TRUE(holds(refusal(processor(repeated(text, 60'000), {0}), "a a a a a a a a a a a a a a a a a a a a"),
                    {"39 bytes of text would become more than 1180272 tokens. Fix the file's template, padding"}));
  EXPECT_TRUE(holds(refusal(processor(repeated(special, 4000), repeated(0, 20'000)), "a"), {"1 byte of text would"}));
  const auto padding = [](const json& strategy, const json& multiple) {
    return json{{"padding",
                 {{"strategy", strategy},
                  {"direction", "Right"},
                  {"pad_to_multiple_of", multiple},
                  {"pad_id", 0},
                  {"pad_type_id", 0},
                  {"pad_token", "<unk>"}}}};
  };
  EXPECT_TRUE(holds(refusal(padding({{"Fixed", 1 << 24}}, nullptr), "a"), {"more than 1179664 tokens"}));
  EXPECT_TRUE(holds(refusal(padding("BatchLongest", 1 << 24), "a"), {"more than 1179664 tokens"}));
  const std::vector<std::string> batch(20, "a");
  EXPECT_EQ(with(padding({{"Fixed", 100'000}}, nullptr)).encode_batch(batch)[19].ids.size(), 100'000U);
  // A byte of a prefix is a token, for each character of the text.
  json bytes = {{"<unk>", 256}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    bytes[name] = byte;
  }
  const json bpe = {{"type", "BPE"},           {"vocab", bytes},
                    {"merges", json::array()}, {"byte_fallback", true},
                    {"unk_token", "<unk>"},    {"continuing_subword_prefix", std::string(100'000, 'x')}};
  EXPECT_TRUE(holds(refusal({{"model", bpe}}, std::string(100, 'a')), {"100 bytes of text would become more than"}));
}

TEST(HostileTokenizer, DecodesToNoLongText) {
  const json model = {
      {"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {std::string(100'000, 'a'), 1}}}, {"unk_token", "<unk>"}};
  const std::vector<int64_t> ids(50, 1);
  const auto decoded = [&](const json& decoder) {
    return error_of<DataError>([&] { (void)with({{"model", model}, {"decoder", decoder}}).decode(ids); });
  };
  EXPECT_TRUE(holds(decoded(nullptr), {"tokenizer.json: 50 tokens would become more than 1061376 bytes of text"}));
  const json tenfold = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10, 'a')}};
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      const json sequence = {{"type", "Sequence"}, {"decoders", repeated(tenfold, 12)}};
                      (void)with({{"decoder", sequence}}).decode(std::vector<int64_t>{1, 1});
                    }),
                    {"2 tokens would become more than"}));
}

TEST(HostileTokenizer, GivesACallLimitedTime) {
  // Each part costs a million steps, which no single match may not take.
  std::string slow;
  for (int i = 0; i < 1000; ++i) slow += std::string(28, 'a') + "d";
  const json pattern = {{"type", "Split"}, {"pattern", {{"Regex", "(?:a|aa)+c|d"}}}, {"behavior", "Isolated"}};
  EXPECT_TRUE(holds(refusal({{"pre_tokenizer", pattern}}, slow, 5),
                    {"29000 bytes of text would take more than 1 seconds of a processor",
                     "Fix the file's patterns and steps, or cut the text into parts."}));
  // What was quadratic or worse in the length of a token, or of a list, is not.
  const std::string token(5'000, 'a');
  const json pieces = {{"type", "WordPiece"},
                       {"vocab", {{"[UNK]", 0}, {"a", 1}, {"##a", 2}, {"##" + token + "b", 3}}},
                       {"unk_token", "[UNK]"},
                       {"max_input_chars_per_word", 1 << 20}};
  EXPECT_EQ(refusal({{"model", pieces}}, token), "");
  const json strip = {{"type", "Strip"}, {"content", "x"}, {"start", 1 << 24}, {"stop", 0}};
  const json model = {
      {"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {std::string(900'000, 'x'), 1}}}, {"unk_token", "<unk>"}};
  EXPECT_EQ(with({{"model", model}, {"decoder", strip}}).decode(std::vector<int64_t>{1}), "");
}

TEST(HostileTokenizer, TakesSpacesOnceForTokensThatTakeSpaces) {
  for (const char* const side : {"lstrip", "rstrip"}) {
    const json token = {{"id", 2}, {"content", " "}, {side, true}, {"normalized", false}};
    EXPECT_EQ(refusal({{"added_tokens", {token}}}, std::string(200'000, ' ')), "");
  }
}

TEST(HostileTokenizer, ReadsALongPatternInLittleTime) {
  const auto split_by = [](const std::string& unit, size_t times) {
    std::string pattern = "[";
    for (size_t i = 0; i < times; ++i) pattern += unit;
    const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern + "]"}}}, {"behavior", "Isolated"}};
    return refusal({{"pre_tokenizer", split}}, "a", 2);
  };
  EXPECT_TRUE(holds(split_by("[:a]", 100'000),
                    {"pre_tokenizer.pattern.Regex: expected a pattern of at most 65536 bytes, saw one of 400002",
                     "Cut it into several steps of a Sequence."}));
  EXPECT_EQ(split_by("[:a]", 16'000), "");
}

// A search from each position of the text, and marks that are all in the wrong order.
TEST(HostileTokenizer, LooksForAPatternInLimitedTime) {
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "(?:a|b)*c"}}}, {"behavior", "Isolated"}};
  EXPECT_TRUE(holds(refusal({{"pre_tokenizer", split}}, std::string(40'000, 'a') + "dc", 10),
                    {"40002 bytes of text would take more than 1 seconds of a processor"}));
  const json possessive = {{"type", "Split"}, {"pattern", {{"Regex", "a*+c"}}}, {"behavior", "Isolated"}};
  EXPECT_TRUE(holds(refusal({{"pre_tokenizer", possessive}}, std::string(100'000, 'a') + "dc", 20),
                    {"100002 bytes of text would take more than 3 seconds of a processor"}));
  const std::string text(900'000, 'a');
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", text.substr(450'000) + "b"}}}, {"content", "c"}};
  EXPECT_EQ(refusal({{"normalizer", replace}}, text), "");
  std::string marks = "a";
  for (int i = 0; i < 50'000; ++i) marks += "\u0301\u0323";
  EXPECT_EQ(refusal({{"normalizer", {{"type", "NFC"}}}}, marks), "");
}

TEST(HostileTokenizer, NamesTheElementOfALongName) {
  const std::string name(100'000, 'x');
  const json single = {{{"SpecialToken", {{"id", name}, {"type_id", 0}}}}};
  const json special = {{name, {{"id", name}, {"ids", {1, -1}}, {"tokens", json::array()}}}};
  const json processor = {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", special}};
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      (void)with({{"post_processor", processor}});
                    }),
                    {"post_processor.special_tokens.xxx", "ids[1]: expected a number from 0", "saw -1"}));
}

TEST(HostileTokenizer, GivesAPatternLimitedMemory) {
  std::string pattern = "(?:";
  for (int k = 0; k < 1000; ++k) pattern += "()";  // each is a step to go back to, for every character
  pattern += "(?:a|b))*c";
  const HuggingFaceTokenizer tokenizer =
      with_normalizer({{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", "-"}});
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)tokenizer.encode(std::string(2'000, 'a') + "dc"); }),
                    {"cannot be matched with text of", "match-stack limit over", "Cut the text into parts"}));
}

TEST(HostileTokenizer, NamesThingsOfTheFileWithoutControllingTheTerminal) {
  const std::string message = error_of<DataError>([] {
    (void)with_normalizer({{"type", "\x1b[2J" + std::string(10'000, 'x')}});
  });
  EXPECT_TRUE(holds(message, {"normalizer.type: the normalizer \\x1b[2Jxxx"}));
  EXPECT_LT(message.size(), 1000U);
}

TEST(HostileTokenizer, RefusesATokenThatIsAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.write("long.tiktoken", std::string(1 << 20, 'A') + " 0\n");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)BpeTokenizer::from_ranks(path); }),
                    {"long.tiktoken:1: expected a token in base64"}));
  folder.write("vocab.json", json{{std::string(1 << 20, 'a'), 0}}.dump());
  folder.write("merges.txt", "");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)make_tokenizer(folder.path()); }),
                    {"vocab.json: token aaa", "expected at most 4096 bytes, saw 1048576."}));
}

}  // namespace
}  // namespace levin::hostile_tokenizer_test
