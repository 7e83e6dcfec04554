#include "levin/data/tokenizers/pattern.h"

#include <nlohmann/json.hpp>

#include "levin/core/error.h"

namespace levin::tokenizers {

void check_growth(size_t before, size_t after) {
  constexpr size_t most_times = 16, always = size_t{1} << 20;
  if (after <= always || (after - always) / most_times <= before) return;
  throw DataError("tokenizer.json: a text of " + std::to_string(before) + " bytes becomes one of more than " +
                  std::to_string(most_times) + " times as many. Mend what its Replace puts in.");
}

Pattern make_pattern(const JsonNode& node) {
  if (node.value().is_string()) return Pattern(node.text());
  if (!node.at("String").is_null()) return Pattern(node.text("String"));
  if (node.at("Regex").is_null()) {
    node.refuse_value("an object with String or Regex");
    return Pattern(std::string());
  }
  const std::string pattern = node.text("Regex");
  try {
    return Pattern(Regex(pattern));
  } catch (const Error& error) {
    node.at("Regex").refuse(std::string(error.what()) + ".");
  }
  return Pattern(std::string());
}

}  // namespace levin::tokenizers
