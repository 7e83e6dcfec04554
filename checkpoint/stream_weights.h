// load_weights for a module that is discarded if loading fails: it needs the memory of the module and of a few tensors,
// not of all weights twice.
#pragma once

namespace torch::nn {
class Module;
}

namespace levin {

struct WeightsOptions;
struct WeightsReport;

/// Like load_weights (checkpoint/weights.h), but each tensor is copied into the module as soon as it is read, by one
/// thread for every 512 MiB, at most 8. Names and shapes are checked before the first one; a damaged file leaves the
/// module with a part of its weights.
WeightsReport stream_weights(torch::nn::Module& module, const WeightsOptions& options);

}  // namespace levin
