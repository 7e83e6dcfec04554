// The base of callbacks that save checkpoints, such as ModelCheckpoint. A run with such a callback gets no
// ModelCheckpoint by default. ckpt_path: best takes the first file that one of them names; ckpt_path: last takes the
// newest of the files that they name and of those in their folders.
//
//   class SaveAtEnd : public levin::Checkpoint {
//    public:
//     void on_train_end(levin::Trainer& trainer, levin::LightningModule&) override {
//     trainer.save_checkpoint("end.ckpt"); } std::string checkpoint_path(levin::Trainer&, const std::string& which)
//     override {
//       return which == "last" ? "end.ckpt" : "";
//     }
//   };
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/trainer/callback.h"

namespace levin {

/// The best of a checkpoint callback's files, by the metric that it monitors.
struct BestCheckpoint {
  std::string monitor = "";  // "": none is monitored
  std::string mode = "";     // "min" or "max"
  std::optional<double> score = std::nullopt;
  std::string path = "";
};

/// The base of checkpoint callbacks (Lightning's name). Their hooks run after the hooks of all other callbacks.
class Checkpoint : public Callback {
 public:
  /// Returns the path of the file that is "best" or "last", "" if there is none; for "interrupted", the path to which a
  /// run that is stopped from outside is saved (the first that a callback gives), "" for none. The trainer also
  /// searches the folder of that path for earlier checkpoints.
  [[nodiscard]] virtual std::string checkpoint_path(Trainer& trainer, const std::string& which) = 0;
  /// Returns what it monitors, and the best file so far.
  [[nodiscard]] virtual BestCheckpoint best_checkpoint() const { return {}; }
};

/// Returns the checkpoint callbacks of a list, in order.
[[nodiscard]] inline std::vector<Checkpoint*> checkpoint_callbacks(
    const std::vector<std::shared_ptr<Callback>>& callbacks) {
  std::vector<Checkpoint*> found;
  for (const auto& callback : callbacks) {
    if (auto* checkpoint = dynamic_cast<Checkpoint*>(callback.get())) found.push_back(checkpoint);
  }
  return found;
}

/// Returns the first checkpoint_path(which) that is not empty; "" if all are.
[[nodiscard]] inline std::string first_checkpoint_path(const std::vector<std::shared_ptr<Callback>>& callbacks,
                                                       Trainer& trainer, const std::string& which) {
  for (Checkpoint* callback : checkpoint_callbacks(callbacks)) {
    std::string path = callback->checkpoint_path(trainer, which);
    if (!path.empty()) return path;
  }
  return "";
}

}  // namespace levin
