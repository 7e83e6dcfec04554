// The command line of rank_program: key=value, or a key alone.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "levin/trainer/trainer_options.h"

namespace levin::test {

class Words {
 public:
  explicit Words(const std::vector<std::string>& all) {
    for (const std::string& word : all) {
      const size_t equals = word.find('=');
      words_[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
  }
  [[nodiscard]] bool has(const std::string& key) const { return words_.contains(key); }
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = words_.find(key);
    return found == words_.end() ? otherwise : found->second;
  }
  [[nodiscard]] int64_t number(const std::string& key, int64_t otherwise) const {
    return has(key) ? std::stoll(words_.at(key)) : otherwise;
  }

 private:
  std::map<std::string, std::string> words_;
};

/// The same runs on GPUs, the simulated one's too: LEVIN_TEST_ON_GPUS=gloo or nccl.
inline bool on_gpus() {
  return std::getenv("LEVIN_TEST_ON_GPUS") != nullptr;
}
/// Such a run would take all GPUs. Not one that a launcher has started.
inline bool is_alone_on_gpus() {
  return on_gpus() && std::getenv("WORLD_SIZE") == nullptr;
}
inline std::string backend_of(const Words& words) {
  return words.text("backend", on_gpus() ? std::getenv("LEVIN_TEST_ON_GPUS") : "auto");
}

inline std::variant<bool, std::string> record_steps_of(const Words& words) {
  const std::string value = words.text("record", "");
  if (!value.empty()) return value;
  return words.has("record");
}

inline NonFiniteLoss nonfinite_loss_of(const Words& words) {
  if (words.has("rollback")) return NonFiniteLoss::rollback;
  if (words.has("skip_nonfinite")) return NonFiniteLoss::skip;
  return words.has("ignore_nonfinite") ? NonFiniteLoss::ignore : NonFiniteLoss::stop;
}

}  // namespace levin::test
