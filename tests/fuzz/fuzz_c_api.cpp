// An input is a program of calls of the C interface: each byte chooses a function, a handle (good, null, freed, of the
// other type, or invented) and small numbers. For any program, each call returns a status, an error has a text, outputs
// of a call that fails are unchanged, and no handle is left once everything is freed. It has no libFuzzer target,
// because it needs the whole library; `./dev check --preset asan` runs it with sanitizers.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "c/guest_model.h"
#include "fuzz_support.h"
#include "levin/c/levin.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxCalls = 64;
constexpr size_t kMaxRuns = 3;
constexpr int64_t kUntouched = -77;

class Calls {
 public:
  Calls(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  void run() {
    expect(levin_init(LEVIN_ABI_VERSION) == LEVIN_OK, "the version is known");
    for (size_t k = 0; k < kMaxCalls && at_ < size_; ++k) call(pick(20));
    for (levin_tensor* tensor : tensors_) (void)levin_tensor_free(tensor);
    for (levin_run* run : runs_) (void)levin_run_free(run);
    expect(levin_live_handles() == 0, "everything is freed");
  }

 private:
  size_t pick(size_t count) { return at_ < size_ ? data_[at_++] % count : 0; }

  // Handles that were freed stay in the lists.
  template <class Handle, class Other>
  Handle* pick_handle(const std::vector<Handle*>& own, const std::vector<Other*>& others) {
    const size_t choice = pick(16);
    if (choice == 0) return nullptr;
    if (choice == 1) return reinterpret_cast<Handle*>(this);
    if (choice == 2) return reinterpret_cast<Handle*>(0x10001 + 2 * pick(256));
    if (choice == 3 && !others.empty()) return reinterpret_cast<Handle*>(others[pick(others.size())]);
    return own.empty() ? nullptr : own[pick(own.size())];
  }
  levin_run* a_run() { return pick_handle(runs_, tensors_); }
  levin_tensor* a_tensor() { return pick_handle(tensors_, runs_); }
  const char* a_name() {
    constexpr std::array<const char*, 8> names{"layer.weight", "layer.bias",   "x", "y",
                                               "val_loss",     "on_fit_start", "",  nullptr};
    return names[pick(names.size())];
  }

  void check(levin_status status) {
    expect(status >= LEVIN_OK && status <= LEVIN_WRONG_VERSION, "a status is one of the header");
    const std::string error = levin_last_error();
    expect(error.empty() == (status == LEVIN_OK), "an error has a text", error);
    check_planted(error, "was freed");
  }
  template <class T>
  void check_output(levin_status status, const T& value, T before) {  // `value` is read after the call
    check(status);
    expect(status == LEVIN_OK || value == before, "a call that fails writes no output");
  }

  bool rarely() { return pick(8) == 0; }

  // One pick a statement, because compilers choose the order within one.
  void make_tensor() {
    std::array<int64_t, 2> shape = {};
    std::array<int64_t, 2> strides = {};
    for (size_t k = 0; k < 2; ++k) {
      shape[k] = static_cast<int64_t>(pick(6));
      if (rarely()) shape[k] = -1;
      const bool is_negative = rarely();
      strides[k] = is_negative ? -1 : static_cast<int64_t>(pick(3));
    }
    if (rarely()) shape[0] = INT64_MAX;
    void* data = rarely() ? nullptr : memory_.data();
    int32_t ndim = static_cast<int32_t>(pick(3));
    if (rarely()) ndim = -1;
    const auto dtype = static_cast<levin_dtype>(pick(12));
    const int64_t* given_shape = rarely() ? nullptr : shape.data();
    const int64_t* given_strides = pick(2) == 0 ? nullptr : strides.data();
    levin_tensor* tensor = nullptr;
    levin_tensor** out = rarely() ? nullptr : &tensor;
    check_output<levin_tensor*>(levin_tensor_from_data(data, dtype, ndim, given_shape, given_strides, out), tensor,
                                nullptr);
    if (tensor != nullptr) tensors_.push_back(tensor);
  }

  void make_run() {
    if (runs_.size() >= kMaxRuns) return;
    constexpr std::array options{"", "  accumulate_grad_batches: 2\n", "  precision: bf16-mixed\n", "  devices: [\n"};
    const std::string file = test::guest_run_file(options[pick(options.size())]);
    levin_run* run = nullptr;
    check_output<levin_run*>(
        levin_run_create_from_text(file.c_str(), nullptr, static_cast<int32_t>(pick(8) == 0), &run), run, nullptr);
    if (run != nullptr) runs_.push_back(run);
  }

  void use_batch(size_t function) {
    std::array<levin_tensor*, 2> tensors{a_tensor(), a_tensor()};
    std::array<const char*, 2> names{a_name(), a_name()};
    const char* const* given = pick(4) == 0 ? names.data() : nullptr;
    const auto count = static_cast<int32_t>(pick(4)) - 1;
    levin_run* run = a_run();
    double loss = kUntouched;
    levin_tensor* out = nullptr;
    if (function == 0)
      return check_output<double>(levin_run_step(run, tensors.data(), given, count, &loss), loss, kUntouched);
    if (function == 1) return check(levin_run_evaluate(run, tensors.data(), given, count));
    check_output<levin_tensor*>(levin_run_predict(run, tensors.data(), given, count, &out), out, nullptr);
    if (out != nullptr) tensors_.push_back(out);
  }

  void use_tensor(size_t function) {
    levin_tensor* tensor = a_tensor();
    levin_view view = {};
    if (function == 0) return check(levin_tensor_free(tensor));
    if (function == 1) return check(levin_tensor_view(tensor, pick(8) == 0 ? nullptr : &view));
    DLManagedTensor* managed = nullptr;
    check_output<DLManagedTensor*>(levin_tensor_to_dlpack(tensor, &managed), managed, nullptr);
    levin_tensor* again = nullptr;
    if (managed != nullptr) check(levin_tensor_from_dlpack(managed, &again));
    if (again != nullptr) tensors_.push_back(again);
  }

  void use_run(size_t function) {
    levin_run* run = a_run();
    int64_t number = kUntouched;
    int32_t flag = kUntouched;
    double value = kUntouched;
    const char* name = nullptr;
    levin_tensor* weight = function == 9 ? a_tensor() : nullptr;
    switch (function) {
      case 0: return check_output(levin_run_global_step(run, &number), number, kUntouched);
      case 1: return check_output(levin_run_current_epoch(run, &number), number, kUntouched);
      case 2: return check_output<int32_t>(levin_run_should_stop(run, &flag), flag, kUntouched);
      case 3: return check_output<int32_t>(levin_run_weight_count(run, &flag), flag, kUntouched);
      case 4:
        return check_output<const char*>(levin_run_weight_name(run, static_cast<int32_t>(pick(5)) - 1, &name), name,
                                         nullptr);
      case 5: return check_output<double>(levin_run_metric(run, a_name(), &value), value, kUntouched);
      case 6: return check(levin_run_log(run, a_name(), 1));
      case 7: return check(levin_run_call(run, a_name()));
      case 8: return check(levin_run_end_epoch(run));
      case 9: return check(levin_run_set_weight(run, a_name(), weight));
      case 10: return check(levin_run_finish(run));
      case 11: return check(levin_run_free(run));
      default: check_output<levin_tensor*>(levin_run_get_weight(run, a_name(), &weight), weight, nullptr);
    }
    if (weight != nullptr) tensors_.push_back(weight);
  }

  void call(size_t function) {
    if (function < 4) return make_tensor();
    if (function == 4) return make_run();
    if (function < 9) return use_batch(pick(3));
    if (function < 12) return use_tensor(pick(3));
    use_run(pick(13));
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
  alignas(8) std::array<char, 1024> memory_ = {};
  std::vector<levin_tensor*> tensors_ = {};
  std::vector<levin_run*> runs_ = {};
};

}  // namespace
}  // namespace levin::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  levin::fuzz::Calls(data, size).run();
  return 0;
}
