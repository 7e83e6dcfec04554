#include "levin/models/exported/mode_arguments.h"

#include <map>

namespace levin::exported {

std::string mode_argument(const std::string& op) {
  static const std::map<std::string, std::string> arguments = {
      {"aten::dropout", "train"},
      {"aten::dropout_", "train"},
      {"aten::feature_dropout", "train"},
      {"aten::feature_dropout_", "train"},
      {"aten::alpha_dropout", "train"},
      {"aten::alpha_dropout_", "train"},
      {"aten::feature_alpha_dropout", "train"},
      {"aten::feature_alpha_dropout_", "train"},
      {"aten::native_dropout", "train"},
      {"aten::rrelu", "training"},
      {"aten::rrelu_", "training"},
      {"aten::batch_norm", "training"},
      {"aten::native_batch_norm", "training"},
      {"aten::_native_batch_norm_legit", "training"},
      {"aten::_native_batch_norm_legit_functional", "training"},
      {"aten::_batch_norm_impl_index", "training"},
      {"aten::cudnn_batch_norm", "training"},
      {"aten::instance_norm", "use_input_stats"},
      {"aten::lstm", "train"},
      {"aten::gru", "train"},
      {"aten::rnn_tanh", "train"},
      {"aten::rnn_relu", "train"},
      {"aten::scaled_dot_product_attention", "dropout_p"},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", "dropout_p"},
  };
  const auto found = arguments.find(op);
  return found == arguments.end() ? "" : found->second;
}

}  // namespace levin::exported
