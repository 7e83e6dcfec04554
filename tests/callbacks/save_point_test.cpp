// A run that was killed before all files of one point in time were written has them after it resumes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::save_point_test {
namespace {

using namespace test;

class WithExtras : public TinyModule {
 public:
  void on_save_checkpoint(State& checkpoint) override {
    checkpoint.set("vocabulary", std::vector<std::string>{"a", "b"});
    checkpoint.tensors["table"] = torch::arange(3);
  }
};

// Gives a value for readers of the weights.
class Scaling : public Callback {
 public:
  [[nodiscard]] State weights_to_save(const LightningModule&) const override {
    State state;
    state.set("scaling", 1.5);
    return state;
  }
  [[nodiscard]] State state_dict() const override {
    State state;
    state.tensors["of_the_run"] = torch::ones(2);
    return state;
  }
  [[nodiscard]] std::string state_key() const override { return "Scaling"; }
};

TEST(SavePoint, AMissingFileOfWeightsIsMadeFromTheWholeOneToTheByte) {
  const TemporaryFolder folder;
  const ModelCheckpoint whole({.dirpath = folder / "ck", .filename = "whole-{epoch}", .save_top_k = -1});
  // Another mode, because two callbacks with the same state key are refused.
  const ModelCheckpoint weights({.dirpath = folder / "ck",
                                 .filename = "weights-{epoch}",
                                 .save_top_k = -1,
                                 .save_weights_only = true,
                                 .mode = MonitorMode::max});
  const auto train = [&](int64_t epochs, const std::string& from) {
    WithExtras module;
    module.make_optimizers = [](TinyModule& m) { return SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9}); };
    Trainer trainer(quiet(
        epochs, {EMAWeightAveraging(), std::make_shared<Scaling>(), ModelCheckpoint(whole), ModelCheckpoint(weights)}));
    trainer.fit(module, tiny_loader(8), tiny_loader(4), from);
  };
  train(1, "");
  const std::string path = folder / "ck/weights-epoch=0.ckpt";
  const std::string written = read_file(path);
  ASSERT_TRUE(read_checkpoint(path).has("scaling"));
  std::filesystem::remove(path);
  train(2, folder / "ck/whole-epoch=0.ckpt");
  EXPECT_EQ(read_file(path), written);
}

}  // namespace
}  // namespace levin::save_point_test
