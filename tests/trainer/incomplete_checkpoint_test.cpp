// Checkpoints that lack a part of what the run needs: what will not continue exactly is reported, and every error names
// the file.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::incomplete_checkpoint_test {
namespace {

using test::CapturedConsole;
using test::has;
using test::TemporaryFolder;
using test::tiny_loader;
using test::TinyModule;

// Keeps one number.
class Counter : public Callback {
 public:
  void on_train_epoch_end(Trainer&, LightningModule&) override { ++count; }
  [[nodiscard]] State state_dict() const override {
    State state;
    state.set("count", count);
    return state;
  }
  void load_state_dict(const State& saved) override { count = saved.get<int64_t>("count"); }
  [[nodiscard]] std::string state_key() const override { return "Counter"; }

  int64_t count = 0;
};

TrainerOptions options(int64_t epochs, const std::string& folder, Callbacks callbacks) {
  TrainerOptions options;
  options.logger = false;
  options.max_epochs = epochs;
  options.callbacks = std::move(callbacks);
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.enable_checkpointing = false;
  options.default_root_dir = folder;
  return options;
}

TEST(SaveCheckpoint, MakesTheFolderThatItIsToBeIn) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer trainer(options(1, folder.path(), {}));
  trainer.fit(module, tiny_loader(8));
  trainer.save_checkpoint(folder / "new/deeper/a.ckpt");
  EXPECT_EQ(read_checkpoint(folder / "new/deeper/a.ckpt").get<int64_t>("global_step"), 2);
}

// A checkpoint of one epoch, changed and written with correct checksums; how the run resumes from it.
std::string resumed_after(const TemporaryFolder& folder, const std::function<void(State&)>& change,
                          std::string* error = nullptr) {
  TinyModule module;
  Trainer first(options(1, folder.path(), {std::make_shared<Counter>()}));
  first.fit(module, tiny_loader(8));
  first.save_checkpoint(folder / "a.ckpt");
  State saved = read_checkpoint(folder / "a.ckpt");
  change(saved);
  write_checkpoint(folder / "a.ckpt", saved);
  const CapturedConsole console;
  TinyModule other;
  try {
    Trainer(options(2, folder.path(), {std::make_shared<Counter>()})).fit(other, tiny_loader(8), {}, folder / "a.ckpt");
  } catch (const Error& thrown) {
    if (error == nullptr) throw;
    *error = thrown.what();
  }
  return console.text();
}

void drop_random_state(State& state) {
  std::erase_if(state.tensors, [](const auto& item) { return item.first.starts_with("rng."); });
}

TEST(IncompleteCheckpoint, AWholeOneIsTakenWithoutAWord) {
  const TemporaryFolder folder;
  EXPECT_FALSE(has(resumed_after(folder, [](State&) {}), "holds no state"));
}

TEST(IncompleteCheckpoint, WithoutRandomStateItIsReported) {
  const TemporaryFolder folder;
  const std::string output = resumed_after(folder, drop_random_state);
  EXPECT_TRUE(has(output, folder / "a.ckpt: it holds no state of the random numbers. It starts from scratch"))
      << output;
}

TEST(IncompleteCheckpoint, WithoutACallbacksStateItIsNamed) {
  const TemporaryFolder folder;
  const std::string output = resumed_after(folder, [](State& state) {
    std::erase_if(state.values.entries, [](const auto& entry) { return entry.key == "callbacks.Counter"; });
    drop_random_state(state);
  });
  EXPECT_TRUE(has(output, "it holds no state of the random numbers, the callback Counter. They start from scratch"))
      << output;
}

TEST(IncompleteCheckpoint, AutoResumeTakesAnOlderOneThatCanBeContinuedExactly) {
  const TemporaryFolder folder;
  const auto run = [&](int64_t epochs) {
    TinyModule module;
    ModelCheckpoint keep({.dirpath = folder / "ck", .save_top_k = -1});
    TrainerOptions all = options(epochs, folder.path(), {std::move(keep)});
    all.enable_checkpointing = true;
    all.auto_resume = true;
    const CapturedConsole console;
    Trainer(all).fit(module, tiny_loader(8), tiny_loader(4));
    return console.text();
  };
  run(2);
  State newest = read_checkpoint(folder / "ck/epoch=1-step=4.ckpt");
  drop_random_state(newest);
  write_checkpoint(folder / "ck/epoch=1-step=4.ckpt", newest);
  const std::string output = run(3);
  EXPECT_TRUE(has(output, folder / "ck/epoch=1-step=4.ckpt: it holds no state of the random numbers")) << output;
  EXPECT_TRUE(has(output, "continuing from " + folder / "ck/epoch=0-step=2.ckpt")) << output;
}

TEST(IncompleteCheckpoint, ErrorsOfItsPartsNameTheFile) {
  const auto change_part = [](const char* part, const char* key) {
    return [=](State& state) {
      State inner = state.part(part);
      std::erase_if(inner.values.entries, [&](const auto& entry) { return entry.key == key; });
      state.put(part, inner);
    };
  };
  const std::vector<std::function<void(State&)>> changes{
      change_part("progress", "epochs"),
      [](State& state) {
        State counter;
        counter.set<std::string>("count", "many");
        state.put("callbacks.Counter", counter);
      },
      change_part("optimizers.0", "groups"),
      change_part("metrics", "callback_metrics"),
      [](State& state) { state.tensors["rng.cpu"] = torch::zeros({3}, at::kByte); },
      [](State& state) { std::erase_if(state.values.entries, [](const auto& e) { return e.key == "weights_only"; }); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    const TemporaryFolder folder;
    std::string error;
    resumed_after(folder, changes[i], &error);
    EXPECT_TRUE(has(error, folder / "a.ckpt")) << "change " << i << ": " << error;
  }
}

}  // namespace
}  // namespace levin::incomplete_checkpoint_test
