// The C interface: what it does with runs and tensors, and that no argument harms the program.
#include <ATen/dlpack.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "c/guest_model.h"
#include "levin/c/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::c_api_test {
namespace {

using test::CapturedConsole;
using test::guest_run_file;
using test::GuestBatch;
using test::holds;
using test::TemporaryFolder;

#define EXPECT_OK(call) EXPECT_EQ(call, LEVIN_OK) << levin_last_error()

// Every test ends without a handle.
class CApi : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(levin_init(LEVIN_ABI_VERSION), LEVIN_OK); }
  void TearDown() override { EXPECT_EQ(levin_live_handles(), 0); }
};

class Guest {
 public:
  explicit Guest(const std::string& file = guest_run_file()) {
    EXPECT_OK(levin_run_create_from_text(file.c_str(), nullptr, 0, &run));
  }
  ~Guest() { EXPECT_OK(levin_run_free(run)); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  double step(const GuestBatch& batch) {
    double loss = 0;
    EXPECT_OK(levin_run_step(run, batch.tensors(), nullptr, batch.count(), &loss));
    return loss;
  }
  std::vector<float> weight(const char* name) {
    levin_tensor* handle = nullptr;
    levin_view view = {};
    EXPECT_OK(levin_run_get_weight(run, name, &handle));
    EXPECT_OK(levin_tensor_view(handle, &view));
    const auto* values = static_cast<const float*>(view.data);
    std::vector<float> copy(values, values + (view.ndim == 2 ? view.shape[0] * view.shape[1] : view.shape[0]));
    EXPECT_OK(levin_tensor_free(handle));
    return copy;
  }
  double metric(const char* name) {
    double value = NAN;
    EXPECT_OK(levin_run_metric(run, name, &value));
    return value;
  }

  levin_run* run = nullptr;
};

std::string error_of(levin_status status, levin_status wanted) {
  EXPECT_EQ(status, wanted);
  return levin_last_error();
}

std::string create_error(const std::string& file, levin_status wanted = LEVIN_CONFIG_ERROR) {
  levin_run* run = nullptr;
  std::string error = error_of(levin_run_create_from_text(file.c_str(), nullptr, 0, &run), wanted);
  EXPECT_EQ(run, nullptr);
  return error;
}

TEST_F(CApi, RefusesADifferentVersion) {
  EXPECT_EQ(levin_abi_version(), LEVIN_ABI_VERSION);
  EXPECT_TRUE(holds(error_of(levin_init(LEVIN_ABI_VERSION + 1), LEVIN_WRONG_VERSION),
                    {"levin_init: the program was compiled for version 2", "has version 1"}));
}

TEST_F(CApi, StepsTrainAndCountersCount) {
  Guest guest;
  const GuestBatch batch;
  const double first = guest.step(batch);
  EXPECT_EQ(guest.metric("train_loss"), first);
  EXPECT_LT(guest.step(batch), first);
  int64_t steps = 0;
  EXPECT_OK(levin_run_global_step(guest.run, &steps));
  EXPECT_EQ(steps, 2);
  int64_t epoch = -1;
  EXPECT_OK(levin_run_current_epoch(guest.run, &epoch));
  EXPECT_EQ(epoch, 0);
  EXPECT_OK(levin_run_end_epoch(guest.run));
  EXPECT_OK(levin_run_current_epoch(guest.run, &epoch));
  EXPECT_EQ(epoch, 1);
  int32_t stop = -1;
  EXPECT_OK(levin_run_should_stop(guest.run, &stop));
  EXPECT_EQ(stop, 0);
}

TEST_F(CApi, TheEndOfAnEpochUpdatesWithTheBatchesThatAreLeft) {
  Guest accumulating(guest_run_file("  accumulate_grad_batches: 4\n"));
  Guest plain;
  const GuestBatch batch;
  (void)accumulating.step(batch);
  EXPECT_OK(levin_run_end_epoch(accumulating.run));
  (void)plain.step(batch);
  EXPECT_EQ(accumulating.weight("layer.weight"), plain.weight("layer.weight"));
}

TEST_F(CApi, NamedTensorsAreThoseOfTheModel) {
  Guest named;
  Guest positional;
  const GuestBatch batch;
  const std::array<levin_tensor*, 2> swapped{batch.tensors()[1], batch.tensors()[0]};
  const std::array names{"y", "x"};
  EXPECT_OK(levin_run_step(named.run, swapped.data(), names.data(), 2, nullptr));
  (void)positional.step(batch);
  EXPECT_EQ(named.weight("layer.weight"), positional.weight("layer.weight"));
}

TEST_F(CApi, EvaluatesAndPredictsWithoutTraining) {
  Guest guest;
  const GuestBatch batch;
  const std::vector<float> before = guest.weight("layer.weight");
  const std::vector<float> bias = guest.weight("layer.bias");
  EXPECT_OK(levin_run_evaluate(guest.run, batch.tensors(), nullptr, 2));
  levin_tensor* prediction = nullptr;
  EXPECT_OK(levin_run_predict(guest.run, batch.tensors(), nullptr, 1, &prediction));
  levin_view view = {};
  EXPECT_OK(levin_tensor_view(prediction, &view));
  ASSERT_EQ(view.ndim, 2);
  EXPECT_EQ(view.shape[0], 4);
  EXPECT_EQ(view.dtype, LEVIN_FLOAT32);
  EXPECT_EQ(view.device_type, 1);
  double squares = 0;
  for (size_t i = 0; i < 4; ++i) {
    double expected = bias[0];
    for (size_t j = 0; j < 4; ++j) expected += static_cast<double>(before[j]) * batch.x[4 * i + j];
    EXPECT_NEAR(static_cast<const float*>(view.data)[i], expected, 1e-6);
    squares += (expected - batch.y[i]) * (expected - batch.y[i]) / 4;
  }
  EXPECT_NEAR(guest.metric("val_loss"), squares, 1e-6);
  EXPECT_OK(levin_tensor_free(prediction));
  EXPECT_EQ(guest.weight("layer.weight"), before);
}

TEST_F(CApi, WeightsAreSetAndCopied) {
  Guest guest;
  int32_t count = 0;
  EXPECT_OK(levin_run_weight_count(guest.run, &count));
  ASSERT_EQ(count, 2);
  const char* name = nullptr;
  EXPECT_OK(levin_run_weight_name(guest.run, 0, &name));
  EXPECT_STREQ(name, "layer.weight");
  std::array<float, 4> values{1, 2, 3, 4};
  const int64_t shape[] = {1, 4};
  levin_tensor* tensor = nullptr;
  EXPECT_OK(levin_tensor_from_data(values.data(), LEVIN_FLOAT32, 2, shape, nullptr, &tensor));
  EXPECT_OK(levin_run_set_weight(guest.run, name, tensor));
  values[0] = 9;
  EXPECT_EQ(guest.weight(name), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(holds(error_of(levin_run_set_weight(guest.run, "layer.bias", tensor), LEVIN_INVALID_ARGUMENT),
                    {"\"layer.bias\" has the shape"}));
  EXPECT_TRUE(holds(error_of(levin_run_set_weight(guest.run, "layer.wight", tensor), LEVIN_INVALID_ARGUMENT),
                    {"no weight is called", "Did you mean \"layer.weight\"?"}));
  EXPECT_OK(levin_tensor_free(tensor));
}

TEST_F(CApi, ARunContinuesFromItsCheckpointBitwise) {
  const TemporaryFolder folder;
  const std::string path = folder / "last.ckpt";
  const GuestBatch batch;
  Guest whole;
  (void)whole.step(batch);
  EXPECT_OK(levin_run_save(whole.run, path.c_str()));
  (void)whole.step(batch);
  Guest resumed;
  const CapturedConsole console;
  EXPECT_OK(levin_run_load(resumed.run, path.c_str()));
  EXPECT_EQ(console.text(), "");
  (void)resumed.step(batch);
  EXPECT_EQ(resumed.weight("layer.weight"), whole.weight("layer.weight"));
  EXPECT_EQ(error_of(levin_run_load(resumed.run, (folder / "none").c_str()), LEVIN_CHECKPOINT_ERROR)
                .rfind("levin_run_load: ", 0),
            0U);
}

TEST_F(CApi, OptionsThatAreOthersThanInTheCheckpointAreWarnedOf) {
  const TemporaryFolder folder;
  const std::string path = folder / "last.ckpt";
  const GuestBatch batch;
  Guest first;
  (void)first.step(batch);
  EXPECT_OK(levin_run_save(first.run, path.c_str()));
  std::string file = guest_run_file("  accumulate_grad_batches: 2\n");
  file.replace(file.find("lr: 0.1"), 7, "lr: 0.2");
  const Guest changed(file);
  const CapturedConsole console;
  EXPECT_OK(levin_run_load(changed.run, path.c_str()));
  ASSERT_EQ(console.lines().size(), 2u) << console.text();
  EXPECT_TRUE(console.lines()[0].starts_with("warning: Continuing from " + path + ": SGD.lr was 0.1 and is 0.2 now"))
      << console.text();
  EXPECT_TRUE(holds(console.lines()[1], {"warning: Continuing from ", "accumulate_grad_batches was 1 and is 2 now"}));
}

TEST_F(CApi, ARunWritesToItsLoggers) {
  const TemporaryFolder folder;
  const std::string file =
      "seed_everything: 1\nmodel: GuestTestModel\noptimizer: SGD\ntrainer: {accelerator: cpu, "
      "devices: 1, default_root_dir: " +
      folder.path() + "}\n";
  Guest guest(file);
  EXPECT_OK(levin_run_log(guest.run, "height", 2.5));
  EXPECT_EQ(guest.metric("height"), 2.5);
  EXPECT_OK(levin_run_finish(guest.run));
  EXPECT_TRUE(std::filesystem::exists(folder / "levin_logs/version_0/metrics.csv"));
}

TEST_F(CApi, ARunThatHasEndedIsOnlyRead) {
  const Guest guest;
  const GuestBatch batch;
  double value = 0;
  EXPECT_OK(levin_run_step(guest.run, batch.tensors(), nullptr, 2, &value));
  EXPECT_OK(levin_run_finish(guest.run));
  const auto refused = [](const char* function, levin_status status) {
    EXPECT_EQ(error_of(status, LEVIN_INVALID_ARGUMENT),
              std::string(function) + ": the run has ended (levin_run_finish). Create another run.");
  };
  int32_t flag = 0;
  levin_tensor* out = nullptr;
  refused("levin_run_finish", levin_run_finish(guest.run));
  refused("levin_run_step", levin_run_step(guest.run, batch.tensors(), nullptr, 2, &value));
  refused("levin_run_evaluate", levin_run_evaluate(guest.run, batch.tensors(), nullptr, 2));
  refused("levin_run_predict", levin_run_predict(guest.run, batch.tensors(), nullptr, 1, &out));
  refused("levin_run_end_epoch", levin_run_end_epoch(guest.run));
  refused("levin_run_log", levin_run_log(guest.run, "height", 2.5));
  refused("levin_run_call", levin_run_call(guest.run, "on_fit_end"));
  refused("levin_run_should_stop", levin_run_should_stop(guest.run, &flag));
  refused("levin_run_save", levin_run_save(guest.run, "never"));
  refused("levin_run_load", levin_run_load(guest.run, "never"));
  int64_t steps = 0;
  EXPECT_OK(levin_run_global_step(guest.run, &steps));
  EXPECT_EQ(steps, 1);
  EXPECT_OK(levin_run_current_epoch(guest.run, &steps));
  EXPECT_OK(levin_run_metric(guest.run, "train_loss", &value));
  EXPECT_OK(levin_run_get_weight(guest.run, "layer.weight", &out));
  EXPECT_OK(levin_tensor_free(out));
}

TEST_F(CApi, AChildProcessCannotUseOrFreeItsParentsRun) {
  Guest guest;
  const GuestBatch batch;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that waits
    const auto refused = [](levin_status status) {
      return status == LEVIN_RUN_ERROR && test::has(levin_last_error(), "this is a child of that process");
    };
    const bool all = refused(levin_run_step(guest.run, batch.tensors(), nullptr, 2, nullptr)) &&
                     refused(levin_run_finish(guest.run)) && refused(levin_run_free(guest.run));
    _exit(all ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  (void)guest.step(batch);  // the parent's run is as before
}

TEST_F(CApi, HooksAreThoseWithoutArguments) {
  const Guest guest;
  for (const char* hook : {"setup",
                           "teardown",
                           "on_fit_start",
                           "on_fit_end",
                           "on_sanity_check_start",
                           "on_sanity_check_end",
                           "on_train_start",
                           "on_train_end",
                           "on_train_epoch_start",
                           "on_train_epoch_end",
                           "on_validation_start",
                           "on_validation_end",
                           "on_validation_epoch_start",
                           "on_validation_epoch_end",
                           "on_test_start",
                           "on_test_end",
                           "on_test_epoch_start",
                           "on_test_epoch_end",
                           "on_predict_start",
                           "on_predict_end",
                           "on_predict_epoch_start",
                           "on_predict_epoch_end"}) {
    EXPECT_OK(levin_run_call(guest.run, hook));
  }
  const std::string error = error_of(levin_run_call(guest.run, "on_train_batch_end"), LEVIN_INVALID_ARGUMENT);
  EXPECT_TRUE(holds(error, {"no hook without arguments is called \"on_train_batch_end\".", "on_train_epoch_end"}));
  EXPECT_EQ(error.find("on_train_batch_start"), std::string::npos);
}

TEST_F(CApi, ErrorsNameOptionsAsTheRunFileDoes) {
  const TemporaryFolder folder;
  std::string file = guest_run_file();
  file.erase(file.find("optimizer: "), file.find("trainer:") - file.find("optimizer: "));
  const Guest guest(file);
  GuestBatch batch;
  EXPECT_EQ(error_of(levin_run_step(guest.run, batch.tensors(), nullptr, 2, nullptr), LEVIN_RUN_ERROR),
            "levin_run_step: there is no optimizer to train with. Name one in the run file, such as `optimizer: "
            "AdamW`, or make it in the model's configure_optimizers.");
  EXPECT_OK(levin_run_evaluate(guest.run, batch.tensors(), nullptr, 2));
  Guest trained;
  batch.x[0] = NAN;
  const std::string error =
      error_of(levin_run_step(trained.run, batch.tensors(), nullptr, 2, nullptr), LEVIN_NONFINITE_LOSS);
  EXPECT_TRUE(holds(error, {"trainer.nonfinite_loss"}));
  EXPECT_EQ(error.find("FabricOptions"), std::string::npos) << error;
}

TEST_F(CApi, AFolderThatCannotBeMadeIsACheckpointError) {
  const TemporaryFolder folder;
  { std::ofstream(folder / "file") << "x"; }
  const Guest guest;
  EXPECT_TRUE(holds(error_of(levin_run_save(guest.run, (folder / "file/x.ckpt").c_str()), LEVIN_CHECKPOINT_ERROR),
                    {"levin_run_save: Fabric.save: saving checkpoint", "file/x.ckpt", "cannot create the folder",
                     "Not a directory"}));
}

TEST_F(CApi, ArgumentsAreThoseOfTheCommandLine) {
  const TemporaryFolder folder;
  levin_run* run = nullptr;
  const std::string file = guest_run_file();
  const std::array arguments{"--trainer.accumulate_grad_batches=2", "--optimizer.lr=0.5"};
  EXPECT_OK(levin_run_create_from_text(file.c_str(), arguments.data(), 2, &run));
  EXPECT_OK(levin_run_free(run));
  const std::array wrong{"--trainer.max_epoch=2"};
  EXPECT_TRUE(holds(error_of(levin_run_create_from_text(file.c_str(), wrong.data(), 1, &run), LEVIN_CONFIG_ERROR),
                    {"max_epochs"}));
  EXPECT_TRUE(holds(error_of(levin_run_create((folder / "none.yaml").c_str(), nullptr, 0, &run), LEVIN_CONFIG_ERROR),
                    {"none.yaml"}));
}

TEST_F(CApi, OptionsThatNeedTheTrainersLoopAreRefused) {
  EXPECT_TRUE(holds(create_error(guest_run_file("  micro_batch_size: 2\n")),
                    {"trainer.micro_batch_size: 2 needs the Trainer's loop"}));
  EXPECT_TRUE(holds(create_error(guest_run_file("  accumulate_grad_batches: {effective_batch_size: 64}\n")),
                    {"Write the number of batches"}));
  EXPECT_TRUE(holds(create_error(guest_run_file() + "ckpt_path: last\n"), {"levin_run_load"}));
  EXPECT_TRUE(holds(create_error("trainer: {devices: 1}\n"), {"no model was given"}));
  Guest of_the_loop(guest_run_file("  max_epochs: 3\n  limit_val_batches: 5\n"));
}

TEST_F(CApi, SeveralRanksNeedALauncher) {
  std::string file = guest_run_file();
  file.replace(file.find("devices: 1"), 10, "devices: 2");
  EXPECT_TRUE(holds(create_error(file), {"2 ranks are wanted", "mpirun"}));
}

TEST_F(CApi, ALossThatIsNotFiniteHasAStatus) {
  Guest guest;
  GuestBatch batch;
  batch.x[0] = NAN;
  double loss = 5;
  EXPECT_EQ(levin_run_step(guest.run, batch.tensors(), nullptr, 2, &loss), LEVIN_NONFINITE_LOSS);
  EXPECT_EQ(loss, 5);
}

// ---- tensors
// ---------------------------------------------------------------------------------------------------------

TEST_F(CApi, ATensorRefersToTheMemoryWithItsStrides) {
  std::array<double, 6> memory{0, 1, 2, 3, 4, 5};
  const int64_t shape[] = {2, 3};
  const int64_t strides[] = {1, 2};
  levin_tensor* tensor = nullptr;
  EXPECT_OK(levin_tensor_from_data(memory.data(), LEVIN_FLOAT64, 2, shape, strides, &tensor));
  levin_view view = {};
  EXPECT_OK(levin_tensor_view(tensor, &view));
  EXPECT_EQ(view.data, memory.data());
  EXPECT_EQ(view.strides[1], 2);
  EXPECT_EQ(view.dtype, LEVIN_FLOAT64);
  EXPECT_OK(levin_tensor_free(tensor));
}

struct Owned {
  DLManagedTensor tensor = {};
  std::array<float, 3> memory{1, 2, 3};
  int64_t shape = 3;
  int deleted = 0;

  Owned() {
    tensor.dl_tensor.data = memory.data();
    tensor.dl_tensor.device = {kDLCPU, 0};
    tensor.dl_tensor.ndim = 1;
    tensor.dl_tensor.dtype = {kDLFloat, 32, 1};
    tensor.dl_tensor.shape = &shape;
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensor* self) { ++static_cast<Owned*>(self->manager_ctx)->deleted; };
  }
};

TEST_F(CApi, DLPackSharesMemoryAndDeletesOnce) {
  Owned owned;
  levin_tensor* tensor = nullptr;
  EXPECT_OK(levin_tensor_from_dlpack(&owned.tensor, &tensor));
  DLManagedTensor* given = nullptr;
  EXPECT_OK(levin_tensor_to_dlpack(tensor, &given));
  EXPECT_OK(levin_tensor_free(tensor));
  EXPECT_EQ(given->dl_tensor.data, owned.memory.data());
  EXPECT_EQ(owned.deleted, 0);
  given->deleter(given);
  EXPECT_EQ(owned.deleted, 1);
}

TEST_F(CApi, ADLPackTensorThatIsRefusedStaysTheCallers) {
  Owned owned;
  owned.shape = -1;
  levin_tensor* tensor = nullptr;
  EXPECT_EQ(levin_tensor_from_dlpack(&owned.tensor, &tensor), LEVIN_INVALID_ARGUMENT);
  owned.shape = 3;
  owned.tensor.dl_tensor.dtype = {kDLFloat, 7, 1};
  EXPECT_NE(levin_tensor_from_dlpack(&owned.tensor, &tensor), LEVIN_OK);
  EXPECT_EQ(owned.deleted, 0);
}

TEST_F(CApi, LayoutsThatCannotBeAreRefused) {
  alignas(8) std::array<char, 32> memory{};
  levin_tensor* tensor = nullptr;
  const auto refused = [&](void* data, levin_dtype dtype, int32_t ndim, const int64_t* shape, const int64_t* strides) {
    return error_of(levin_tensor_from_data(data, dtype, ndim, shape, strides, &tensor), LEVIN_INVALID_ARGUMENT);
  };
  const int64_t two[] = {2, 2};
  const int64_t negative[] = {2, -2};
  const int64_t huge[] = {INT64_MAX, 4};
  EXPECT_TRUE(holds(refused(memory.data(), 77, 2, two, nullptr), {"dtype is 77"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, -1, two, nullptr), {"ndim is -1"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, 65, two, nullptr), {"ndim is 65"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, 2, nullptr, nullptr), {"shape is null"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, 2, negative, nullptr), {"shape[1] is -2"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, 2, two, negative), {"strides[1] is -2"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, 2, huge, nullptr), {"more memory"}));
  EXPECT_TRUE(holds(refused(memory.data(), LEVIN_FLOAT32, 2, two, huge), {"more memory"}));
  EXPECT_TRUE(holds(refused(nullptr, LEVIN_FLOAT32, 2, two, nullptr), {"data is null"}));
  EXPECT_TRUE(holds(refused(memory.data() + 1, LEVIN_FLOAT32, 2, two, nullptr), {"not aligned"}));
  const int64_t none[] = {0, 3};
  EXPECT_OK(levin_tensor_from_data(nullptr, LEVIN_FLOAT32, 2, none, nullptr, &tensor));
  EXPECT_OK(levin_tensor_free(tensor));
}

// ---- handles
// ---------------------------------------------------------------------------------------------------------

// Calls each function that takes a run with this handle.
void expect_refused(levin_run* run, const std::string& error) {
  const GuestBatch batch;
  double number = 0;
  int64_t count = 0;
  int32_t flag = 0;
  const char* name = nullptr;
  levin_tensor* out = nullptr;
  const auto refused = [&](levin_status status) {
    EXPECT_TRUE(holds(error_of(status, LEVIN_INVALID_ARGUMENT), {error}));
  };
  refused(levin_run_finish(run));
  refused(levin_run_step(run, batch.tensors(), nullptr, 2, &number));
  refused(levin_run_evaluate(run, batch.tensors(), nullptr, 2));
  refused(levin_run_predict(run, batch.tensors(), nullptr, 2, &out));
  refused(levin_run_end_epoch(run));
  refused(levin_run_metric(run, "loss", &number));
  refused(levin_run_log(run, "loss", 1));
  refused(levin_run_global_step(run, &count));
  refused(levin_run_current_epoch(run, &count));
  refused(levin_run_call(run, "on_fit_start"));
  refused(levin_run_should_stop(run, &flag));
  refused(levin_run_weight_count(run, &flag));
  refused(levin_run_weight_name(run, 0, &name));
  refused(levin_run_get_weight(run, "layer.weight", &out));
  refused(levin_run_set_weight(run, "layer.weight", batch.tensors()[0]));
  refused(levin_run_save(run, "never"));
  refused(levin_run_load(run, "never"));
  if (run != nullptr) refused(levin_run_free(run));
}

TEST_F(CApi, NullFreedAndWrongRunsAreRefused) {
  Guest guest;
  levin_run* freed = guest.run;
  EXPECT_OK(levin_run_free(guest.run));
  guest.run = nullptr;
  const GuestBatch batch;
  int on_the_stack = 0;
  expect_refused(nullptr, "the run is null");
  expect_refused(freed, "the run was freed");
  expect_refused(reinterpret_cast<levin_run*>(&on_the_stack), "the run is not a handle");
  expect_refused(reinterpret_cast<levin_run*>(batch.tensors()[0]), "the handle is of a tensor");
}

TEST_F(CApi, NullFreedAndWrongTensorsAreRefused) {
  Guest guest;
  levin_tensor* freed = nullptr;
  {
    const GuestBatch batch;
    freed = batch.tensors()[0];
  }
  const auto refused = [&](levin_tensor* tensor, const char* error) {
    levin_view view = {};
    DLManagedTensor* managed = nullptr;
    EXPECT_TRUE(holds(error_of(levin_tensor_view(tensor, &view), LEVIN_INVALID_ARGUMENT), {error}));
    EXPECT_TRUE(holds(error_of(levin_tensor_to_dlpack(tensor, &managed), LEVIN_INVALID_ARGUMENT), {error}));
    EXPECT_TRUE(
        holds(error_of(levin_run_step(guest.run, &tensor, nullptr, 1, nullptr), LEVIN_INVALID_ARGUMENT), {error}));
    EXPECT_TRUE(
        holds(error_of(levin_run_set_weight(guest.run, "layer.weight", tensor), LEVIN_INVALID_ARGUMENT), {error}));
    if (tensor != nullptr) {
      EXPECT_TRUE(holds(error_of(levin_tensor_free(tensor), LEVIN_INVALID_ARGUMENT), {error}));
    }
  };
  refused(nullptr, "the tensor is null");
  refused(freed, "the tensor was freed");
  refused(reinterpret_cast<levin_tensor*>(guest.run), "the handle is of a run");
  EXPECT_OK(levin_tensor_free(nullptr));
  EXPECT_OK(levin_run_free(nullptr));
}

TEST_F(CApi, NullPointersAreRefused) {
  Guest guest;
  const GuestBatch batch;
  const auto refused = [](levin_status status, const char* error) {
    EXPECT_TRUE(holds(error_of(status, LEVIN_INVALID_ARGUMENT), {error}));
  };
  levin_run* run = nullptr;
  double value = 0;
  refused(levin_run_create(nullptr, nullptr, 0, &run), "path is null");
  refused(levin_run_create("run.yaml", nullptr, 0, nullptr), "out is null");
  refused(levin_run_create_from_text(nullptr, nullptr, 0, &run), "yaml is null");
  refused(levin_run_create_from_text("", nullptr, 1, &run), "arguments is null");
  refused(levin_run_create_from_text("", nullptr, -1, &run), "count is -1");
  refused(levin_run_step(guest.run, nullptr, nullptr, 2, nullptr), "tensors is null");
  refused(levin_run_step(guest.run, batch.tensors(), nullptr, 0, nullptr), "count is 0");
  const std::array<const char*, 2> names{"x", nullptr};
  refused(levin_run_step(guest.run, batch.tensors(), names.data(), 2, nullptr), "names[1] is null");
  refused(levin_run_predict(guest.run, batch.tensors(), nullptr, 1, nullptr), "out is null");
  refused(levin_run_metric(guest.run, nullptr, &value), "name is null");
  refused(levin_run_metric(guest.run, "loss", nullptr), "value is null");
  refused(levin_run_metric(guest.run, "loss", &value), "no value is called \"loss\"");
  refused(levin_run_save(guest.run, nullptr), "path is null");
  refused(levin_run_call(guest.run, nullptr), "hook is null");
  const char* name = nullptr;
  refused(levin_run_weight_name(guest.run, 2, &name), "index is 2, and there are 2 weights");
  refused(levin_tensor_view(batch.tensors()[0], nullptr), "out is null");
  levin_tensor* tensor = nullptr;
  refused(levin_tensor_from_dlpack(nullptr, &tensor), "managed is null");
}

TEST_F(CApi, CallsOfManyThreadsAreExecutedOneAfterAnother) {
  Guest shared;
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&] {
      const GuestBatch batch;
      for (int n = 0; n < 5; ++n) (void)shared.step(batch);
      EXPECT_EQ(levin_run_step(nullptr, batch.tensors(), nullptr, 2, nullptr), LEVIN_INVALID_ARGUMENT);
      EXPECT_STRNE(levin_last_error(), "");  // of this thread
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t steps = 0;
  EXPECT_OK(levin_run_global_step(shared.run, &steps));
  EXPECT_EQ(steps, 20);
}

TEST_F(CApi, RunsOfSeveralThreadsAreTheSame) {
  std::array<std::vector<float>, 3> weights;
  std::vector<std::thread> threads;
  for (auto& weight : weights) {
    threads.emplace_back([&weight] {
      Guest guest;
      const GuestBatch batch;
      for (int n = 0; n < 5; ++n) (void)guest.step(batch);
      weight = guest.weight("layer.weight");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

}  // namespace
}  // namespace levin::c_api_test
