// File names with numbers in them: "{epoch}-{step}-{val_loss:.2f}" becomes "epoch=3-step=24-val_loss=0.40".
#pragma once

#include <string>
#include <vector>

#include "levin/trainer/metrics.h"

namespace levin {

class CheckpointName {
 public:
  /// `insert_names`: "{v}" becomes "v=0.4" instead of "0.4", and "{val/acc}" "val_acc=0.4": a metric's name makes no
  /// folder. Formats are Python's: an optional 0, a width, .precision and one of d f e g %. Throws Error showing what
  /// is wrong with `text`, such as "../a", which is not a name below the checkpoints' folder.
  CheckpointName(const std::string& text, bool insert_names);

  /// "epoch" and "step" are integers. A metric that was not logged is "nan", with a warning.
  [[nodiscard]] std::string format(const Metrics& metrics) const;
  /// The metrics in the name, without "epoch" and "step".
  [[nodiscard]] std::vector<std::string> metrics() const;

 private:
  struct Part {
    std::string text = "";    // before the number
    std::string metric = "";  // "": no number
    std::string spec = "";
  };

  [[nodiscard]] static std::string number(const Part& part, double value);

  std::vector<Part> parts_ = {};
};

}  // namespace levin
