// Programs of torch.export that the targets `exported` and `onnx` make of their inputs: good archives with some parts
// changed, which the checksums of a zip would stop otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "forge_calls.h"
#include "levin/libtorch/below_autograd.h"
#include "levin/models/exported/exported_program.h"

namespace levin::fuzz {

inline constexpr int64_t kMaxElements = 1 << 18;

/// Ends programs that would take long: with huge tensors, which expand() makes without memory, or many small ones.
class Budget : public OperatorObserver {
 public:
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) override;

 private:
  size_t calls_ = 0;
};

/// A file in memory that the reader opens by its path.
[[nodiscard]] const std::string& program_path();

/// Writes the program of an input to program_path(). The first byte selects the kind of the rest: 'm'
/// models/model.json, 'w' the list of weights, 'c' calls of operators as in models/hostile_calls.h, 'o' bytes that
/// choose `operators` and arguments, else the whole archive. Returns false for a whole archive.
bool write_program(std::string_view input, const std::vector<c10::OperatorHandle>& operators);

/// Returns models/model.json of program_path(), or a discarded value.
[[nodiscard]] nlohmann::json program_model();

/// Returns a tensor of ones for each input of the program, of the sizes that `model` declares; `extra` is added to the
/// first size.
[[nodiscard]] std::vector<at::Tensor> declared_inputs(const ExportedProgram& program, const nlohmann::json& model,
                                                      int64_t extra);

}  // namespace levin::fuzz
