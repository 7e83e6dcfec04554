#include "forge_program.h"

#include <ATen/ops/ones.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>

#include "levin/core/options/error.h"
#include "models/forged_archive.h"
#include "models/forged_program.h"
#include "support/paths.h"

namespace levin::fuzz {

namespace {

constexpr size_t kMaxCalls = 5000;
const std::string kModel = "models/model.json";

void check_size(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.numel() > kMaxElements) throw Error("a larger tensor than the fuzzer allows");
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

}  // namespace

void Budget::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) {
  if (++calls_ > kMaxCalls) throw Error("more calls than the fuzzer allows");
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) check_size(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) check_size(tensor);
    }
  }
  run_inside(op, keys, stack);
}

const std::string& program_path() {
  static const std::string path = "/proc/self/fd/" + std::to_string(::memfd_create("input", MFD_CLOEXEC));
  return path;
}

nlohmann::json program_model() {
  const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) { return depth < 40; };
  return nlohmann::json::parse(test::ForgedArchive(program_path())[kModel], is_shallow, /*allow_exceptions=*/false);
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

bool write_program(std::string_view input, const std::vector<c10::OperatorHandle>& operators) {
  const char kind = input.empty() ? 'a' : input[0];
  const std::string rest(input.substr(std::min<size_t>(1, input.size())));
  if (kind != 'm' && kind != 'w' && kind != 'c' && kind != 'o') {
    std::ofstream(program_path(), std::ios::binary) << rest;
    return false;
  }
  test::ForgedArchive archive = good_archive();
  if (kind == 'c' || kind == 'o') {
    const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) { return depth < 10; };
    archive[kModel] =
        model_of(kind == 'o' ? calls_of(rest, operators) : nlohmann::json::parse(rest, is_shallow, false));
  } else {
    archive[kind == 'm' ? kModel : "data/weights/model_weights_config.json"] = rest;
  }
  archive.write(program_path());
  return true;
}

}  // namespace levin::fuzz
