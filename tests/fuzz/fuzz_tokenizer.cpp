// libFuzzer target: an input is a tokenizer.json and, after a line "%%%%", any text. For any bytes,
// HuggingFaceTokenizer reads the file or throws DataError; a tokenizer that was read encodes any text to tokens of its
// own, which it can decode.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fuzz_support.h"
#include "levin/core/options/error.h"
#include "levin/data/text/huggingface_tokenizer.h"

namespace levin::fuzz {
namespace {

constexpr std::string_view kBorder = "\n%%%%\n";
constexpr size_t kMaxTextBytes = 512;

// Text of several scripts, long repeats, and bytes that are not UTF-8: joined emoji, marks without a letter, a byte
// order mark, right-to-left text, a surrogate, a character cut short.
const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = {
      "a\u00e9 \u2460 B-1\r\n\u4e2d\U0001f600 a",
      "",
      std::string(300, 'a') + std::string(200, ' ') + std::string(100, '\n'),
      "\ufeff\u0301\u0301\u05d0\u202e\u0661\u00df\u0130\ufb01\u1e9e\U0001f468\u200d\U0001f469\ufe0f\u0e01\u0e33",
      std::string("\0\xff\xc3\xed\xa0\x80\xf4\x90\x80\x80\xe4\xb8", 12),
  };
  return all;
}

void check_tokens(const HuggingFaceTokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  std::vector<int64_t> wide(ids.begin(), ids.end());
  for (const int64_t id : wide) {
    expect(tokenizer.id_to_token(id).has_value(), "every encoded token is one of the tokenizer's", text);
  }
  (void)tokenizer.decode(wide, false);
  (void)tokenizer.decode(wide, true);
  (void)tokenizer.encode_pair(text, "b", true);
  const size_t most = 16 * text.size() + (size_t{1} << 20) + (size_t{1} << 17);
  expect(tokenizer.encode_to(text, 8).size() <= most, "a call makes no more tokens than its budget has");
  expect(tokenizer.encode(text, true).ids.size() <= most, "padding and special tokens are within the budget too");
}

}  // namespace

void run_one(std::string_view bytes) {
  const std::string input(bytes);
  ++Counts::instance().inputs;
  const size_t border = std::min(input.find(kBorder), input.size());
  const std::string text = border == input.size() ? "" : input.substr(border + kBorder.size(), kMaxTextBytes);
  try {
    const HuggingFaceTokenizer tokenizer(input.substr(0, border), "tokenizer.json");
    ++Counts::instance().whole;
    check_tokens(tokenizer, text);
    for (const std::string& fixed : texts()) check_tokens(tokenizer, fixed);
  } catch (const DataError& error) {
    std::string message = error.what();
    expect(message.find("tokenizer") != std::string::npos, "an error says whose it is", message);
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of what is not supported has a line for each
    expect_good_message(message, 10'000);
    check_planted(message, "is not in model.vocab");
  }
}

void begin() {
  Counts::print_at_exit();
}

}  // namespace levin::fuzz
