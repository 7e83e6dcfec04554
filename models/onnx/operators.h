// Which operators of PyTorch can be translated to ONNX, and how: one table, of which each file holds a part. Internal.
#pragma once

#include <map>
#include <string>

#include "levin/models/onnx/operator_call.h"

namespace levin::onnx {

/// Adds the nodes of one call to its graph, and gives each of its results that it can a name. Throws NotTranslated.
using Translation = void (*)(OperatorCall&);
using Translations = std::map<std::string, Translation>;

[[nodiscard]] Translations arithmetic_translations();     // numbers and tensors, element by element
[[nodiscard]] Translations activation_translations();     // functions of one tensor
[[nodiscard]] Translations comparison_translations();     // ==, <, and, where
[[nodiscard]] Translations matrix_translations();         // products of matrices, attention
[[nodiscard]] Translations normalization_translations();  // batch_norm, layer_norm, softmax, …
[[nodiscard]] Translations convolution_translations();    // convolutions, pooling, padding
[[nodiscard]] Translations resizing_translations();       // images of other sizes, values at the places of a grid
[[nodiscard]] Translations window_translations();         // unfold, im2col, adaptive pooling, pixel_shuffle, …
[[nodiscard]] Translations shape_translations();          // views, copies, casts
[[nodiscard]] Translations joining_translations();        // cat, split, slice, …
[[nodiscard]] Translations creation_translations();       // zeros, arange, …
[[nodiscard]] Translations reduction_translations();      // sum, max, topk, cumsum, …
[[nodiscard]] Translations indexing_translations();       // embedding, gather, index, …
[[nodiscard]] Translations scatter_translations();        // scatter, index_add, embedding_bag, …
[[nodiscard]] Translations loss_translations();           // mse_loss, nll_loss, …
[[nodiscard]] Translations recurrent_translations();      // lstm, gru, rnn

/// All of them, by functional name ("add" for aten::add, aten::add_ and all their overloads).
[[nodiscard]] const Translations& translations();

}  // namespace levin::onnx
