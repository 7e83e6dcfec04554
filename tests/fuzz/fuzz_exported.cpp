// libFuzzer target: an input is a .pt2 file of torch.export, or one of its JSON files within an otherwise good archive:
// the checksums of a zip would stop any other change. For any bytes, ExportedProgram loads them or throws
// Error, and what it loads runs forward and backward, or throws, without leaving the memory of its tensors.
//
// The first byte selects the kind of the rest: 'm' models/model.json, 'w' the list of weights, 'c' calls of operators
// as in models/hostile_calls.h, 'o' bytes that choose operators and arguments, else the whole archive.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sum.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "forge_calls.h"
#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/core/options/error.h"
#include "levin/libtorch/below_autograd.h"
#include "levin/models/exported/exported_program.h"
#include "models/forged_archive.h"
#include "models/forged_program.h"
#include "support/paths.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxBytes = 64 << 20, kMaxCalls = 5000;
constexpr int64_t kMaxElements = 1 << 18;
const std::string kModel = "models/model.json";

uint64_t inputs = 0, jsons = 0, loaded = 0, ran = 0;

// Ends programs that would take long: with huge tensors, which expand() makes without memory, or many small ones.
class Budget : public OperatorObserver {
 public:
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) override {
    if (++calls_ > kMaxCalls) throw Error("more calls than the fuzzer allows");
    for (const c10::IValue& value : stack) {
      if (value.isTensor()) check(value.toTensor());
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) check(tensor);
      }
    }
    run_inside(op, keys, stack);
  }

 private:
  static void check(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.numel() > kMaxElements) throw Error("a larger tensor than the fuzzer allows");
  }

  size_t calls_ = 0;
};

// LibTorch's errors are of several types; none of them is a finding.
void run_program(ExportedProgram& program) {
  try {
    const Budget budget;
    std::vector<at::Tensor> given(program.input_names().size(), at::ones({3, 4}));
    if (given.size() == 2) given[1] = at::ones({4});  // state.pt2
    at::Tensor sum;
    for (const at::Tensor& output : program.forward(given)) {
      if (output.defined() && output.requires_grad()) sum = at::real(output).sum();
    }
    ++ran;
    if (sum.defined()) sum.backward();
  } catch (const std::exception&) {
  }
}

// A file in memory that the reader opens by its path.
const std::string& scratch_path() {
  static const std::string path = "/proc/self/fd/" + std::to_string(::memfd_create("input", MFD_CLOEXEC));
  return path;
}

const test::ForgedArchive& good_archive() {
  static const test::ForgedArchive good(test::source_dir() + "/tests/models/data/mlp.pt2");
  return good;
}

// Returns model.json with these calls of operators, or with fewer if `calls` is not a list of calls.
std::string model_of(const nlohmann::json& calls) {
  static const nlohmann::json good = [] {
    nlohmann::json model = nlohmann::json::parse(test::ForgedArchive(good_archive())[kModel]);
    test::replace_calls(model, test::tensor_calls());
    return model;
  }();
  nlohmann::json model = good;
  try {
    test::add_calls(model, calls);
  } catch (const nlohmann::json::exception&) {
  }
  return model.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_input(std::string_view input) {
  const char kind = input.empty() ? 'a' : input[0];
  const std::string rest(input.substr(std::min<size_t>(1, input.size())));
  if (kind != 'm' && kind != 'w' && kind != 'c' && kind != 'o') {
    std::ofstream(scratch_path(), std::ios::binary) << rest;
    return;
  }
  ++jsons;
  test::ForgedArchive archive = good_archive();
  if (kind == 'c' || kind == 'o') {
    const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) { return depth < 10; };
    archive[kModel] = model_of(kind == 'o' ? calls_of(rest) : nlohmann::json::parse(rest, is_shallow, false));
  } else {
    archive[kind == 'm' ? kModel : "data/weights/model_weights_config.json"] = rest;
  }
  archive.write(scratch_path());
}

}  // namespace

void run_one(std::string_view input) {
  ++inputs;
  write_input(input);
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  try {
    ExportedProgram program(scratch_path());
    ++loaded;
    expect(program.named_parameters().size() <= input.size() + 100, "there are no more weights than the file can hold");
    run_program(program);
  } catch (const Error& error) {
    std::string message = error.what();
    expect(message.find(scratch_path()) != std::string::npos, "an error names the file", message);
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of what is missing has a line for each
    expect_good_message(message, 100'000);
    check_planted(message, "which nothing before it defines");
  }
}

}  // namespace levin::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit([] {
    using namespace levin::fuzz;
    std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole, %lu run\n", inputs, jsons,
                 loaded, ran);
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  levin::fuzz::run_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
