// The files of a ModelCheckpoint: their names, which names are free, and whether the folder has room. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levin/trainer/metrics.h"

namespace levin {

/// Returns the first version whose path is not taken: 0 is <folder>/<stem>.ckpt, 1 is <folder>/<stem>-v1.ckpt.
[[nodiscard]] int64_t free_version(const std::string& folder, const std::string& stem,
                                   const std::function<bool(const std::string& path)>& is_taken);
[[nodiscard]] std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version);

/// Returns whether both are the same folder, links followed. The folders need not exist.
[[nodiscard]] bool is_same_folder(const std::string& one, const std::string& other);
/// Returns whether both name the same file of the same folder. The files need not exist, and are not followed if they
/// are links.
[[nodiscard]] bool is_same_file(const std::string& one, const std::string& other);

/// Returns the name in `folder` of a checkpoint whose `path` was saved ("last.ckpt"); "" if it is not in or below
/// `folder`, contains "." or ".." or control characters, or does not end in .ckpt. Does not access the disk; is_inside
/// checks links.
[[nodiscard]] std::string name_within(const std::string& path, const std::string& folder);

/// Returns why the folder, or its nearest existing parent, has no room for `bytes` more: not writable, or full. Returns
/// "" if it has. Creates nothing.
[[nodiscard]] std::string folder_problem(const std::string& folder, uint64_t bytes);

/// The pattern of a file name with numbers in it: "{epoch}-{step}-{val_loss:.2f}" gives
/// "epoch=3-step=24-val_loss=0.40".
class CheckpointName {
 public:
  /// `insert_names`: "{v}" becomes "v=0.4" instead of "0.4", and "{val/acc}" becomes "val_acc=0.4": a metric's name
  /// makes no folder. Formats are Python's: an optional 0, a width, .precision and one of d f e g %. Throws Error if
  /// `text` is not such a pattern, or not a name below the checkpoints' folder ("../a").
  CheckpointName(const std::string& text, bool insert_names);

  /// Returns the name; "epoch" and "step" are integers. A metric that was not logged is "nan", with a warning.
  [[nodiscard]] std::string format(const Metrics& metrics) const;
  /// Returns the metrics in the name, without "epoch" and "step".
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
