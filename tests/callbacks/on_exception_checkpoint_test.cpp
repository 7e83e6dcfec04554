#include "levin/callbacks/on_exception_checkpoint.h"

#include <gtest/gtest.h>

#include "callbacks/resume.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"

namespace levin::on_exception_checkpoint_test {
namespace {

using namespace test;

constexpr const char* kFire = "training_step, epoch 1, batch 2, global step 8: the GPU is on fire";

// Fails in the batch that makes step 9 of 12.
std::string failing_fit(TinyModule& module, const std::string& dirpath) {
  module.on_training_step = [&module](int64_t) {
    if (module.global_step() == 8) throw Error("the GPU is on fire");
  };
  Trainer trainer(quiet(2, OnExceptionCheckpoint({.dirpath = dirpath})));
  return error_of([&] { trainer.fit(module, tiny_loader(24), tiny_loader(16)); });
}

TEST(OnExceptionCheckpoint, SavesWhatTrainingContinuesFromBitwiseIdentically) {
  const TemporaryFolder folder;
  TinyModule whole, cut, rest;
  Trainer(quiet(2, {})).fit(whole, tiny_loader(24), tiny_loader(16));
  EXPECT_EQ(failing_fit(cut, folder / "new/folder"), kFire);
  const std::string path = folder / "new/folder/on_exception.ckpt";
  ASSERT_TRUE(std::filesystem::exists(path));
  Trainer trainer(quiet(2, OnExceptionCheckpoint({.dirpath = folder / "new/folder"})));
  trainer.fit(rest, tiny_loader(24), tiny_loader(16), "last");
  EXPECT_EQ(trainer.ckpt_path(), path);
  expect_same_bits(module_tensors(rest), module_tensors(whole), "module");
  EXPECT_FALSE(std::filesystem::exists(path)) << "a run that ended well needs it no more";
}

TEST(OnExceptionCheckpoint, AFailureToSaveHidesNothing) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "in the way");
  const CapturedConsole console;
  TinyModule module;
  EXPECT_EQ(failing_fit(module, folder / "file/below"), kFire);
  EXPECT_TRUE(console.has("OnExceptionCheckpoint") && console.has(folder / "file") &&
              console.has("The state is not saved") && console.has("the GPU is on fire"))
      << console.text();
}

TEST(OnExceptionCheckpoint, SavesNothingBeforeTrainingAndAfterIt) {
  const TemporaryFolder folder;
  struct Failing : TinyModule {
    void setup(Stage) override {
      if (early) throw Error("early");
    }
    void on_fit_end() override { throw Error("late"); }
    bool early = true;
  } module;
  Trainer trainer(quiet(1, OnExceptionCheckpoint({.dirpath = folder.path()})));
  EXPECT_EQ(error_of([&] { trainer.fit(module, tiny_loader(24)); }), "setup: early");
  module.early = false;
  EXPECT_EQ(error_of([&] { trainer.fit(module, tiny_loader(24)); }),
            "on_fit_end, epoch 1, batch 5, global step 6: late");
  EXPECT_TRUE(folder.names().empty());
}

TEST(OnExceptionCheckpoint, SavesInItsFolderAlone) {
  for (const char* name : {"../x", "/x"}) {
    const std::string error = error_of([&] { OnExceptionCheckpoint({.dirpath = "a", .filename = name}); });
    EXPECT_TRUE(
        has(error, std::string("OnExceptionCheckpointOptions.filename: \"") + name + "\" leads out of dirpath."))
        << error;
  }
}

TEST(OnExceptionCheckpoint, RefusesEmptyNames) {
  const std::string error = error_of([] { OnExceptionCheckpoint({.filename = ""}); });
  EXPECT_TRUE(has(error, "OnExceptionCheckpointOptions.dirpath: must be set") && has(error, ".filename: must be set"))
      << error;
}

}  // namespace
}  // namespace levin::on_exception_checkpoint_test
