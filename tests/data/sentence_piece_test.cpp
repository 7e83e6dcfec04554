#include "levin/data/text/sentence_piece.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/run_program.h"
#include "support/temporary_folder.h"

namespace levin::sentence_piece_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Sentences from the licence that Debian's base-files put on every machine.
std::vector<std::string> sentences(size_t count) {
  std::ifstream file("/usr/share/common-licenses/GPL-3");
  std::vector<std::string> strings;
  std::string text, word;
  while (strings.size() < count && file >> word) {
    text += (text.empty() ? "" : " ") + word;
    if (text.size() < 75) continue;
    strings.push_back(text);
    text.clear();
  }
  EXPECT_EQ(strings.size(), count);
  return strings;
}

// A model of 300 pieces trained on 400 sentences by SentencePiece's own program. `more`: its options.
std::string train(const TemporaryFolder& folder, const std::string& name, const std::string& more = "") {
  std::string text;
  for (const std::string& sentence : sentences(400)) text += sentence + "\n";
  const std::string input = folder.write("sentences.txt", text);
  const auto ran = test::run_program(
      "spm_train --minloglevel=2 --num_threads=1 --model_type=unigram --character_coverage=1 --vocab_size=300 "
      "--input=" +
      input + " --model_prefix=" + (folder / name) + " " + more);
  EXPECT_EQ(ran.status, 0) << ran.output;
  return folder / name + ".model";
}

// Returns what SentencePiece's own program encodes, as the model's ids.
std::vector<std::vector<int>> spm_encode(const TemporaryFolder& folder, const std::string& model,
                                         const std::vector<std::string>& strings) {
  std::string lines;
  for (const std::string& text : strings) lines += text + "\n";
  const std::string input = folder.write("lines.txt", lines), output = folder / "ids.txt";
  const auto ran =
      test::run_program("spm_encode --model=" + model + " --output_format=id --output=" + output + " " + input);
  EXPECT_EQ(ran.status, 0) << ran.output;
  std::vector<std::vector<int>> all;
  std::ifstream encoded(output);
  for (std::string line; std::getline(encoded, line);) {
    std::istringstream numbers(line);
    all.emplace_back(std::istream_iterator<int>(numbers), std::istream_iterator<int>());
  }
  return all;
}

std::vector<int64_t> wide(const std::vector<int32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

TEST(SentencePieceTokenizer, NumbersPiecesAsXlmRDoes) {
  const TemporaryFolder folder;
  const std::string path = train(folder, "plain");
  const SentencePieceTokenizer tokenizer(path);
  EXPECT_EQ(tokenizer.vocab_size(), 302);  // as XLM-R's 250000 become 250002
  size_t seen = 0;
  const auto strings = sentences(200);
  const auto expected = spm_encode(folder, path, strings);  // <unk> 0, <s> 1, </s> 2, then pieces
  ASSERT_EQ(expected.size(), strings.size());
  for (size_t k = 0; k < strings.size(); ++k) {
    const std::vector<int32_t> tokens = tokenizer.encode(strings[k]);
    ASSERT_EQ(tokens.size(), expected[k].size());
    for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], expected[k][i] + 1) << strings[k];
    seen += tokens.size();
  }
  EXPECT_GT(seen, 5000U);
  EXPECT_EQ(tokenizer.encode("\u4e2d").back(), SpecialTokens::unknown);
}

TEST(SentencePieceTokenizer, GivesTheTextBack) {
  const TemporaryFolder folder;
  const SentencePieceTokenizer tokenizer(train(folder, "round"));
  for (const std::string& sentence : sentences(300)) {
    std::vector<int64_t> tokens = wide(tokenizer.encode(sentence));
    EXPECT_LT(tokens.size(), sentence.size());
    tokens.insert(tokens.begin(), SpecialTokens::start);
    tokens.push_back(SpecialTokens::end);
    tokens.push_back(SpecialTokens::pad);
    tokens.push_back(tokenizer.vocab_size() - 1);  // <mask>
    ASSERT_EQ(tokenizer.decode(tokens), sentence);
  }
}

// With other numbers for the special pieces, the ordinary ones still follow in their order.
TEST(SentencePieceTokenizer, FindsSpecialPiecesWhereverTheModelHasThem) {
  const TemporaryFolder folder;
  const std::string path = train(folder, "other", "--pad_id=0 --bos_id=-1 --eos_id=1 --unk_id=2");
  const SentencePieceTokenizer tokenizer(path);
  EXPECT_EQ(tokenizer.vocab_size(), 4 + 297 + 1);
  const std::string text = sentences(1)[0];
  const std::vector<int> ids = spm_encode(folder, path, {text}).at(0);
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tokens[i], ids[i] + 1);  // 3 to 4, …
  EXPECT_EQ(tokenizer.decode(wide(tokens)), text);
}

TEST(SentencePieceTokenizer, NamesTheFileThatIsNotAModel) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    const std::string path = folder.write("bad.model", bytes);
    return error_of<DataError>([&] { const SentencePieceTokenizer tokenizer(path); });
  };
  EXPECT_TRUE(holds(error(""), {"bad.model: expected a SentencePiece model", "the file is empty"}));
  EXPECT_TRUE(
      holds(error("not a SentencePiece model"), {"bad.model: expected a SentencePiece model", "trainer wrote"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { const SentencePieceTokenizer tokenizer(folder / "none.model"); }),
                    {"none.model", "No such file"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { (void)make_sequence_tokenizer("pieces"); }),
                    {"expected \"byte\", a SentencePiece model", "tokenizer.json", "\"pieces\""}));
}

TEST(SentencePieceTokenizer, ReportsWhichTokenThereIsNot) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = {"byte", train(folder, "m")};
  for (const std::string& name : names) {
    const auto tokenizer = make_sequence_tokenizer(name);
    const std::vector<int64_t> tokens = {5, tokenizer->vocab_size()};
    EXPECT_TRUE(holds(error_of<DataError>([&] { (void)tokenizer->decode(tokens); }),
                      {"token 1: expected 0 to " + std::to_string(tokenizer->vocab_size() - 1)}));
  }
}

// The library and LibTorch each have a FLAGS_minloglevel: see sentence_piece_model.h. LibTorch's would lie over the
// flag that makes a failed check end the process.
TEST(SentencePieceTokenizer, LeavesLibTorchsVariablesAlone) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer refuses RTLD_DEEPBIND, which keeps the variables apart";
#endif
  std::string problem;
  EXPECT_EQ(open_sentence_piece("not a SentencePiece model", problem), nullptr);
  EXPECT_NE(problem, "");
  EXPECT_THROW((void)at::empty({int64_t{1} << 58}, at::kByte), c10::Error);
}

TEST(SentencePieceTokenizer, HasBytesForWantOfAModel) {
  const auto tokenizer = make_sequence_tokenizer("byte");
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->encode("A\xFF"), (std::vector<int32_t>{69, 259}));
  const std::vector<int64_t> framed = {SpecialTokens::start, 69, SpecialTokens::end, SpecialTokens::pad};
  EXPECT_EQ(tokenizer->decode(framed), "A");
}

}  // namespace
}  // namespace levin::sentence_piece_test
