#include "levin/data/text/sentence_piece.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "levin/core/error.h"
#include "levin/data/text/text_reader.h"
#include "support/error_text.h"
#include "support/run_program.h"
#include "support/temporary_folder.h"

namespace levin::sentence_piece_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Skips where Debian's package bible-kjv-text is not installed.
#define NEED_BIBLE() \
  if (!std::filesystem::exists(kjv_path())) GTEST_SKIP() << "bible-kjv-text is not installed"

std::vector<std::string> verses(size_t count) {
  std::istringstream lines(read_text(kjv_path()));
  std::vector<std::string> texts;
  std::string line;
  std::getline(lines, line);  // the title
  while (texts.size() < count && std::getline(lines, line)) texts.push_back(line.substr(line.find(' ') + 1));
  return texts;
}

// A model of 300 pieces trained on 400 verses by SentencePiece's own program. `more`: its options.
std::string train(const TemporaryFolder& folder, const std::string& name, const std::string& more = "") {
  std::string text;
  for (const std::string& verse : verses(400)) text += verse + "\n";
  const std::string input = folder.write("verses.txt", text);
  const auto ran = test::run_program(
      "spm_train --minloglevel=2 --num_threads=1 --model_type=unigram --character_coverage=1 --vocab_size=300 "
      "--input=" +
      input + " --model_prefix=" + (folder / name) + " " + more);
  EXPECT_EQ(ran.status, 0) << ran.output;
  return folder / name + ".model";
}

// What SentencePiece's own program makes of the texts, in the model's numbers.
std::vector<std::vector<int>> spm_encode(const TemporaryFolder& folder, const std::string& model,
                                         const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += text + "\n";
  const std::string input = folder.write("texts.txt", lines), output = folder / "ids.txt";
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
  NEED_BIBLE();
  const TemporaryFolder folder;
  const std::string path = train(folder, "plain");
  const SentencePieceTokenizer tokenizer(path);
  EXPECT_EQ(tokenizer.vocab_size(), 302);  // as XLM-R's 250000 become 250002
  size_t seen = 0;
  const auto texts = verses(200);
  const auto expected = spm_encode(folder, path, texts);  // <unk> 0, <s> 1, </s> 2, then pieces
  ASSERT_EQ(expected.size(), texts.size());
  for (size_t k = 0; k < texts.size(); ++k) {
    const std::vector<int32_t> tokens = tokenizer.encode(texts[k]);
    ASSERT_EQ(tokens.size(), expected[k].size());
    for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], expected[k][i] + 1) << texts[k];
    seen += tokens.size();
  }
  EXPECT_GT(seen, 5000U);
  EXPECT_EQ(tokenizer.encode("\u4e2d").back(), SpecialTokens::unknown);
}

TEST(SentencePieceTokenizer, GivesTheTextBack) {
  NEED_BIBLE();
  const TemporaryFolder folder;
  const SentencePieceTokenizer tokenizer(train(folder, "round"));
  for (const std::string& verse : verses(300)) {
    std::vector<int64_t> tokens = wide(tokenizer.encode(verse));
    EXPECT_LT(tokens.size(), verse.size());
    tokens.insert(tokens.begin(), SpecialTokens::start);
    tokens.push_back(SpecialTokens::end);
    tokens.push_back(SpecialTokens::pad);
    tokens.push_back(tokenizer.vocab_size() - 1);  // <mask>
    ASSERT_EQ(tokenizer.decode(tokens), verse);
  }
}

// With other numbers for the special pieces, the ordinary ones still follow in their order.
TEST(SentencePieceTokenizer, FindsSpecialPiecesWhereverTheModelHasThem) {
  NEED_BIBLE();
  const TemporaryFolder folder;
  const std::string path = train(folder, "other", "--pad_id=0 --bos_id=-1 --eos_id=1 --unk_id=2");
  const SentencePieceTokenizer tokenizer(path);
  EXPECT_EQ(tokenizer.vocab_size(), 4 + 297 + 1);
  const std::string text = verses(1)[0];
  const std::vector<int> ids = spm_encode(folder, path, {text}).at(0);
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tokens[i], ids[i] + 1);  // 3 to 4, …
  EXPECT_EQ(tokenizer.decode(wide(tokens)), text);
}

TEST(SentencePieceTokenizer, SaysWhichFileIsNoModel) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    const std::string path = folder.write("bad.model", bytes);
    return error_of<DataError>([&] { const SentencePieceTokenizer tokenizer(path); });
  };
  EXPECT_TRUE(holds(error(""), {"bad.model: expected a SentencePiece model", "the file is empty"}));
  EXPECT_TRUE(holds(error("these are no pieces"), {"bad.model: expected a SentencePiece model", "trainer wrote"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { const SentencePieceTokenizer tokenizer(folder / "none.model"); }),
                    {"none.model", "No such file"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { (void)make_sequence_tokenizer("pieces"); }),
                    {"expected \"byte\", a SentencePiece model", "tokenizer.json", "\"pieces\""}));
}

TEST(SentencePieceTokenizer, SaysWhichTokenThereIsNot) {
  NEED_BIBLE();
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
  EXPECT_EQ(open_sentence_piece("these are no pieces", problem), nullptr);
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
