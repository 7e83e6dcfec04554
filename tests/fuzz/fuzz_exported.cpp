// libFuzzer target: an input is a .pt2 file of torch.export, or one of its JSON files within an otherwise good archive:
// the checksums of a zip would stop any other change. For any bytes, ExportedProgram loads them or throws
// Error, and what it loads runs forward and backward, or throws, without leaving the memory of its tensors: with inputs
// of the shapes that it declares and with a batch of a different size, in training and in evaluation mode.
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

// A file in memory that the reader opens by its path.
const std::string& scratch_path() {
  static const std::string path = "/proc/self/fd/" + std::to_string(::memfd_create("input", MFD_CLOEXEC));
  return path;
}

// The sizes that model.json declares of a tensor, of which `extra` is added to the first; (3, 4) if it declares none.
std::vector<int64_t> declared_sizes(const nlohmann::json& tensor, int64_t extra) {
  const std::vector<int64_t> usual{3 + extra, 4};
  if (!tensor.contains("sizes") || !tensor["sizes"].is_array()) return usual;
  std::vector<int64_t> sizes;
  int64_t elements = 1;
  for (const auto& size : tensor["sizes"]) {
    const auto& hint = size.contains("as_expr") ? size["as_expr"].value("hint", nlohmann::json()) : size;
    sizes.push_back(std::clamp<int64_t>(hint.value("as_int", int64_t{3}), 0, kMaxElements));
    elements *= std::max<int64_t>(sizes.back(), 1);
    if (elements > kMaxElements) return usual;
  }
  if (!sizes.empty()) sizes[0] += extra;
  return sizes;
}

std::vector<at::Tensor> declared_inputs(const ExportedProgram& program, const nlohmann::json& model, int64_t extra) {
  std::vector<at::Tensor> given;
  for (const std::string& name : program.input_names()) {
    nlohmann::json tensor;
    try {
      tensor = model.at("graph_module").at("graph").at("tensor_values").at(name);
      const bool is_whole_number = tensor.value("dtype", 7) == 5;  // as torch.export numbers the types
      given.push_back(at::ones(declared_sizes(tensor, extra), is_whole_number ? at::kLong : at::kFloat));
    } catch (const nlohmann::json::exception&) {
      given.push_back(at::ones({3 + extra, 4}));
    }
  }
  return given;
}

// LibTorch's errors are of several types; none of them is a finding.
void run_program(ExportedProgram& program, const std::vector<at::Tensor>& given) {
  try {
    const Budget budget;
    at::Tensor sum;
    for (const at::Tensor& output : program.forward(given)) {
      if (output.defined() && output.requires_grad()) sum = at::real(output).sum();
    }
    ++ran;
    if (sum.defined()) sum.backward();
  } catch (const std::exception&) {
  }
}

void run_in_all_ways(ExportedProgram& program) {
  const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) { return depth < 40; };
  const nlohmann::json model =
      nlohmann::json::parse(test::ForgedArchive(scratch_path())[kModel], is_shallow, /*allow_exceptions=*/false);
  run_program(program, declared_inputs(program, model, 0));
  run_program(program, declared_inputs(program, model, 2));
  program.eval();
  run_program(program, declared_inputs(program, model, 0));
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
    run_in_all_ways(program);
  } catch (const Error& error) {
    std::string message = error.what();
    expect(message.find(scratch_path()) != std::string::npos, "an error names the file", message);
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of what is missing has a line for each
    expect_good_message(message, 100'000);
    check_planted(message, "which nothing before it defines");
  }
}

void begin() {
  std::atexit([] {
    std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole, %lu run\n", inputs, jsons,
                 loaded, ran);
  });
}

}  // namespace levin::fuzz
