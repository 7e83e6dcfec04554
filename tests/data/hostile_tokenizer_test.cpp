// tokenizer.json and vocabularies that are made to harm: an error, in little time and memory.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/core/error.h"
#include "levin/data/text/bpe.h"
#include "levin/data/text/huggingface_tokenizer.h"
#include "levin/data/text/make_tokenizer.h"
#include "support/error_text.h"
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

// A map in sentencepiece's form that replaces "a" by its texts from `begin` on.
std::string map_of_a(uint32_t begin, const std::string& texts) {
  std::vector<uint32_t> trie(256, 0);
  trie[0] = 1U << 10;                                   // the nodes of first characters are around 1
  trie[1 ^ 'a'] = (1U << 10) | 0x100U | uint32_t{'a'};  // whose value is beside it
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

TEST(HostileTokenizer, MakesNoTextManyTimesAsLong) {
  json steps = json::array();
  for (int k = 0; k < 12; ++k) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10, 'a')}});
  }
  const HuggingFaceTokenizer tokenizer = with_normalizer({{"type", "Sequence"}, {"normalizers", steps}});
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)tokenizer.encode("aaa"); }),
                    {"a text of", "becomes one of more than 16 times as many", "Mend what its Replace puts in"}));
  // A short text may become a megabyte, whatever it is.
  const json long_one = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(900'000, 'c')}};
  EXPECT_EQ(with_normalizer(long_one).encode("a"), (std::vector<int32_t>{0}));
}

TEST(HostileTokenizer, GivesAPatternLimitedMemory) {
  std::string pattern;
  for (int k = 0; k < 1000; ++k) pattern += "()";  // each makes a step backwards more expensive
  pattern += "(?:a|b)*c";
  const HuggingFaceTokenizer tokenizer =
      with_normalizer({{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", "-"}});
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)tokenizer.encode(std::string(100'000, 'a') + "dc"); }),
                    {"cannot be matched with a text of", "heap limit exceeded", "Cut the text into parts"}));
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
}

}  // namespace
}  // namespace levin::hostile_tokenizer_test
