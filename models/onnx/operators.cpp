#include "levin/models/onnx/operators.h"

namespace levin::onnx {

const Translations& translations() {
  static const Translations all = [] {
    Translations table;
    for (const auto& part :
         {arithmetic_translations(), activation_translations(), comparison_translations(), matrix_translations(),
          normalization_translations(), convolution_translations(), resizing_translations(), window_translations(),
          shape_translations(), joining_translations(), creation_translations(), reduction_translations(),
          indexing_translations(), scatter_translations(), loss_translations(), recurrent_translations()}) {
      table.insert(part.begin(), part.end());
    }
    return table;
  }();
  return all;
}

}  // namespace levin::onnx
