#define PCRE2_CODE_UNIT_WIDTH 8
#include "levin/adapters/peft_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>

#include "levin/core/error.h"

namespace levin {

namespace {

constexpr uint32_t kFewSteps = 16, kMostSteps = 1 << 17;  // of one match
constexpr size_t kBytesPerStep = 2;                       // of a compiled expression
constexpr size_t kLettersPerStep = 256;                   // of a name, which a step may go through
constexpr size_t kLongestExpression = 4096;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

void take_steps(size_t steps, int64_t& left, const std::string& what) {
  left -= static_cast<int64_t>(steps);
  if (left >= 0) return;
  throw CheckpointError(what + " and those before it need more than " + std::to_string(kMostPatternSteps) +
                        " steps. Give fewer of them, and layers' names in full rather than .*");
}

// PCRE2 does not tell how many steps a match has taken, so it gets few, and twice as many while they are not enough.
int match(const pcre2_code* code, const std::string& name, pcre2_match_data* data, pcre2_match_context* limits,
          int64_t& steps_left, const std::string& what) {
  int result = PCRE2_ERROR_MATCHLIMIT;
  for (uint32_t steps = kFewSteps; steps <= kMostSteps && result == PCRE2_ERROR_MATCHLIMIT; steps *= 2) {
    take_steps(steps * (1 + name.size() / kLettersPerStep), steps_left, what);
    pcre2_set_match_limit(limits, steps);
    result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, limits);
  }
  return result;
}

}  // namespace

std::vector<std::string> matching_layers(const std::string& expression, const std::vector<std::string>& layers,
                                         int64_t& steps_left) {
  const std::string what = "the expression \"" + cut_text(expression) + "\"";
  if (expression.size() > kLongestExpression) throw CheckpointError(what + " is too long");
  const std::string whole = "(?:.*\\.)?(?:" + expression + ")";
  int error = 0;
  PCRE2_SIZE place = 0;
  constexpr uint32_t kOptions = PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), kOptions, &error, &place, nullptr),
      pcre2_code_free);
  if (code == nullptr) throw CheckpointError(what + " cannot be used: " + message_of(error));
  size_t bytes = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_SIZE, &bytes);
  take_steps(bytes / kBytesPerStep, steps_left, what);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  std::vector<std::string> found;
  for (const std::string& layer : layers) {
    const int result = match(code.get(), layer, data.get(), limits.get(), steps_left, what);
    if (result >= 0) {
      found.push_back(layer);
    } else if (result != PCRE2_ERROR_NOMATCH) {
      throw CheckpointError(what + " cannot be matched with " + cut_text(layer) + ": " + message_of(result));
    }
  }
  return found;
}

}  // namespace levin
