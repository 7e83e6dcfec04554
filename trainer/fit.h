// Training in one call, for a network whose batches are (input, target) and a loss of its output:
//
//   torch::nn::Sequential net(torch::nn::Linear(784, 10));
//   levin::fit(net, torch::nn::CrossEntropyLoss(), levin::DataLoader(data, {.batch_size = 32, .shuffle = true}),
//              {.lr = 1e-2, .max_epochs = 3});
//
// Anything else, such as several losses or metrics, is the work of a LightningModule.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/data/data_module.h"
#include "levin/data/loader.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

/// Options of fit.
struct FitOptions {
  std::optional<double> lr = std::nullopt;           // AdamW's; unset: 1e-3
  std::optional<int64_t> max_epochs = std::nullopt;  // the Trainer's
  /// Makes a different optimizer, also with a scheduler: [](auto params) { return levin::SGD(params, {.lr = 0.1}); }
  std::function<OptimizerConfig(const std::vector<at::Tensor>& params)> optimizer = {};
  Loaders val = {};            // batches to validate with; a data module has its own
  std::string ckpt_path = "";  // see Trainer::fit
  TrainerOptions trainer = {};
};

namespace detail {

/// The network that fit trains.
struct FitNet {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(torch::nn::Module& net, at::Tensor input)> forward;
};

/// The loss; `module` is null for a function.
struct FitLoss {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(torch::nn::Module* loss, const at::Tensor& output, const at::Tensor& target)> forward;
};

[[noreturn]] void throw_null_loss();

// The module of a holder (torch::nn::Linear), or of a pointer.
template <class T>
std::shared_ptr<T> module_pointer(const std::shared_ptr<T>& module) {
  return module;
}
template <class Holder>
requires requires(const Holder& holder) {
  holder.ptr();
}
auto module_pointer(const Holder& holder) {
  return holder.is_empty() ? nullptr : holder.ptr();
}

template <class T>
concept PointsToModule = requires(const T& net) {
  { module_pointer(net) } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

template <class Net>
FitNet fit_net(const Net& net) {
  static_assert(PointsToModule<Net>,
                "levin::fit: the network must be a module holder, such as torch::nn::Sequential, or a std::shared_ptr "
                "of your module");
  if constexpr (PointsToModule<Net>) {
    auto module = module_pointer(net);
    using Module = typename decltype(module)::element_type;
    constexpr bool has_forward = requires(Module & m, at::Tensor input) {
      { m.forward(input) } -> std::convertible_to<at::Tensor>;
    };
    static_assert(has_forward, "levin::fit: the network needs a public member function Tensor forward(Tensor input)");
    if constexpr (has_forward) {
      return {module, [](torch::nn::Module& m, at::Tensor input) -> at::Tensor {
                return dynamic_cast<Module&>(m).forward(input);
              }};
    }
  }
}

template <class Loss>
FitLoss fit_loss(Loss loss) {
  if constexpr (PointsToModule<Loss>) {
    auto module = module_pointer(loss);
    if (module == nullptr) throw_null_loss();
    using Module = typename decltype(module)::element_type;
    return {module, [](torch::nn::Module* m, const at::Tensor& output, const at::Tensor& target) -> at::Tensor {
              return dynamic_cast<Module&>(*m).forward(output, target);
            }};
  } else {
    constexpr bool is_loss = std::is_invocable_r_v<at::Tensor, Loss&, const at::Tensor&, const at::Tensor&>;
    static_assert(is_loss,
                  "levin::fit: the loss must be callable as loss(output, target) and return a tensor; wrap a function "
                  "of LibTorch in a lambda, and call torch::nn losses with (): torch::nn::CrossEntropyLoss()");
    if constexpr (std::is_pointer_v<Loss> || requires { loss.target_type(); }) {  // of a function; a std::function
      if (loss == nullptr) throw_null_loss();
    }
    if constexpr (is_loss) {
      return {nullptr,
              [function = std::move(loss)](torch::nn::Module*, const at::Tensor& output,
                                           const at::Tensor& target) mutable -> at::Tensor {
                return function(output, target);
              }};
    }
  }
}

Metrics fit(FitNet net, FitLoss loss, Loaders train, FitOptions options);
Metrics fit(FitNet net, FitLoss loss, DataModule& data, FitOptions options);

}  // namespace detail

/// Trains `net` in place, as Trainer::fit does for a LightningModule with the members "net" and "loss", and returns the
/// final metrics: "train_loss" of the last batch and, with validation batches, "val_loss". Logs both.
/// `net`: a module holder, or a std::shared_ptr of a module with forward(Tensor). `loss`: a module of (output, target),
/// whose parameters are trained too, or a function, which the threads of dp call at the same time. A function must not
/// use the network's parameters, because dp gives each replica a copy of them. `train`: a loader.
/// Checkpoints name the weights "net.…". Throws what Trainer's constructor and Trainer::fit throw, ConfigError for
/// options that exclude each other, and Error for a batch that is not (input, target), or a loss of several elements.
template <class Net, class Loss>
Metrics fit(const Net& net, Loss loss, Loaders train, FitOptions options = {}) {
  return detail::fit(detail::fit_net(net), detail::fit_loss(std::move(loss)), std::move(train), std::move(options));
}
/// Same as above with the loaders of a data module.
template <class Net, class Loss>
Metrics fit(const Net& net, Loss loss, DataModule& data, FitOptions options = {}) {
  return detail::fit(detail::fit_net(net), detail::fit_loss(std::move(loss)), data, std::move(options));
}
template <class Net, class Loss>
Metrics fit(const Net& net, Loss loss, DataModule&& data, FitOptions options = {}) {
  return fit(net, std::move(loss), data, std::move(options));
}

}  // namespace levin
