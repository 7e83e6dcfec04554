#include "levin/data/text/bpe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/text/make_tokenizer.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::bpe_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Made by reference/bpe.py and bpe_cl100k.py with the packages tiktoken, tokenizers and regex.
const std::string kReference = test::source_dir() + "/tests/data/reference/";

nlohmann::json cases(BpePattern pattern = BpePattern::gpt2) {
  const bool gpt2 = pattern == BpePattern::gpt2;
  return nlohmann::json::parse(read_file(kReference + (gpt2 ? "bpe.json" : "bpe_cl100k.json")));
}

BpeTokenizer by_ranks() {
  return BpeTokenizer::from_ranks(kReference + "bpe.tiktoken");
}
BpeTokenizer by_merges() {
  return BpeTokenizer::from_merges(kReference + "vocab.json", kReference + "merges.txt");
}

TEST(FirstWord, CutsTextAsThePatternsDo) {
  for (const auto pattern : {BpePattern::gpt2, BpePattern::cl100k}) {
    for (const auto& one : cases(pattern)) {
      const auto text = one["text"].get<std::string>();
      std::vector<std::string> words;
      for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(words.back().size())) {
        words.emplace_back(detail::first_word(rest, pattern));
      }
      EXPECT_EQ(words, one["words"].get<std::vector<std::string>>()) << one["text"];
    }
  }
}

TEST(BpeTokenizer, EncodesAsTiktokenAndTokenizersDo) {
  const BpeTokenizer ranks = by_ranks(), merges = by_merges();
  EXPECT_EQ(ranks.vocab_size(), 512);
  EXPECT_EQ(merges.vocab_size(), 513) << "with <|endoftext|>";
  for (const auto& one : cases()) {
    const auto text = one["text"].get<std::string>();
    const auto tokens = one["tokens"].get<std::vector<int32_t>>();
    EXPECT_EQ(ranks.encode(text), tokens) << one["text"];
    EXPECT_EQ(merges.encode(text), tokens) << one["text"];
  }
}

TEST(BpeTokenizer, EncodesByTheOtherPatternAsTiktokenDoes) {
  const auto tokenizer = make_tokenizer(kReference + "bpe.tiktoken", BpePattern::cl100k);
  for (const auto& one : cases(BpePattern::cl100k)) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), one["tokens"].get<std::vector<int32_t>>()) << one["text"];
  }
}

TEST(BpeTokenizer, GivesAnyBytesBack) {
  std::mt19937 random(1);
  std::string all(256, '\0');
  for (size_t i = 0; i < 256; ++i) all[i] = static_cast<char>(i);
  std::string noise(20'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::string cut = "caf\xc3", overlong = "\xc0\xaf\xed\xa0\x80\xf8\x88\x80\x80\x80 \xff'\xe2\x80";
  const auto by_cl100k = BpeTokenizer::from_ranks(kReference + "bpe.tiktoken", BpePattern::cl100k);
  for (const BpeTokenizer& tokenizer : {by_ranks(), by_merges(), by_cl100k}) {
    for (const std::string& text : {all, noise, cut, overlong, std::string(200'000, 'a'), std::string()}) {
      const std::vector<int32_t> tokens = tokenizer.encode(text);
      EXPECT_EQ(tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end())), text);
    }
  }
}

TEST(BpeTokenizer, DecodesSpecialTokensAndNamesUnknownOnes) {
  EXPECT_EQ(by_merges().decode(std::vector<int64_t>{40, 77, 512}), "In<|endoftext|>");
  EXPECT_TRUE(holds(error_of<DataError>([] {
                      (void)by_ranks().decode(std::vector<int64_t>{40, 512});
                    }),
                    {"token 1", "512 tokens", "saw 512"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { (void)by_ranks().decode(std::vector<int64_t>{-1}); }), {"saw -1"}));
}

TEST(BpeTokenizer, NamesFileAndLineOfAMistake) {
  const TemporaryFolder folder;
  const std::string good = read_file(kReference + "bpe.tiktoken");
  const auto of_ranks = [&](const std::string& content) {
    const std::string path = folder.write("bad.tiktoken", content);
    return error_of<DataError>([&] { (void)BpeTokenizer::from_ranks(path); });
  };
  EXPECT_TRUE(holds(of_ranks("IQ== 0\nIg=! 1\n"), {"bad.tiktoken:2: expected a token in base64", "Ig=! 1"}));
  EXPECT_TRUE(holds(of_ranks("IQ== 0\nIg== one\n"), {"bad.tiktoken:2: expected a rank", "saw one"}));
  EXPECT_TRUE(holds(of_ranks("IQ== 0\nIQ== 1\n"), {"bad.tiktoken:2: expected a new token, found a duplicate"}));
  EXPECT_TRUE(holds(of_ranks("IQ== 0\nIg== 99999999999\n"), {":2: expected a rank from 0 to 16777215"}));
  EXPECT_TRUE(holds(of_ranks("IQ== 0\n"), {"bad.tiktoken", "a token for every byte", "byte 0"}));
  EXPECT_TRUE(holds(of_ranks(good + "dGhlIQ== 511\n"), {"two tokens have the number 511"}));

  const std::string vocab = read_file(kReference + "vocab.json"), merges = read_file(kReference + "merges.txt");
  const auto of_merges = [&](const std::string& vocab_text, const std::string& merges_text) {
    folder.write("vocab.json", vocab_text);
    folder.write("merges.txt", merges_text);
    return error_of<DataError>([&] { (void)make_tokenizer(folder.path()); });
  };
  EXPECT_TRUE(holds(of_merges("[1]", merges), {"vocab.json", "a JSON object"}));
  EXPECT_TRUE(holds(of_merges("{\"a\": -1}", merges), {"vocab.json: token a: expected a number from 0", "saw -1"}));
  EXPECT_TRUE(holds(of_merges(vocab, "#version: 0.2\nt h\nth\n"), {"merges.txt:3: expected two tokens", "saw th"}));
  EXPECT_TRUE(holds(of_merges(vocab, "#version: 0.2\nq z\n"), {"merges.txt:2: expected tokens that are in", "saw qz"}));
}

TEST(MakeTokenizer, KnowsWhatANameStandsFor) {
  EXPECT_EQ(make_tokenizer("byte")->vocab_size(), 256);
  EXPECT_EQ(make_tokenizer(kReference + "bpe.tiktoken")->vocab_size(), 512);
  EXPECT_EQ(make_tokenizer(kReference)->vocab_size(), 513);
  EXPECT_EQ(make_tokenizer("byte")->encode("A\xff"), (std::vector<int32_t>{65, 255}));
  EXPECT_TRUE(holds(error_of<DataError>([] {
                      (void)make_tokenizer("byte")->decode(std::vector<int64_t>{0, 256});
                    }),
                    {"token 1", "0 to 255", "saw 256"}));
}

}  // namespace
}  // namespace levin::bpe_test
