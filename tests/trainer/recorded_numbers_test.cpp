// TrainerOptions::record_steps on a CPU: steps that keep, change or replace tensors give the numbers of a run without
// recordings, recorded or not.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/trainer/lightning_module.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::recorded_numbers_test {
namespace {

using namespace test;

struct Net : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override { return step(*this, batch, batch_idx); }
  void validation_step(const Batch& batch, int64_t) override {
    if (on_validation) on_validation(*this, batch);
  }
  void on_train_epoch_start() override {
    if (on_epoch) on_epoch(*this);
  }
  void on_train_batch_start(const Batch&, int64_t batch_idx) override {
    if (before_batch) before_batch(*this, batch_idx);
  }
  void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override {
    if (after_batch) after_batch(*this);
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override {
    return transfer ? transfer(*this, std::move(batch)) : std::move(batch);
  }
  at::Tensor loss_of(const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(layer->forward(x), y); }

  std::function<at::Tensor(Net&, const Batch&, int64_t)> step = [](Net& m, const Batch& batch, int64_t) {
    return m.loss_of(batch[0], batch[1]);
  };
  std::function<void(Net&, const Batch&)> on_validation = nullptr;
  std::function<void(Net&)> on_epoch = nullptr;
  std::function<void(Net&, int64_t)> before_batch = nullptr;
  std::function<void(Net&)> after_batch = nullptr;
  int64_t accumulate = 1;
  std::function<Batch(Net&, Batch)> transfer = nullptr;
  torch::nn::Linear teacher{register_module("teacher", torch::nn::Linear(4, 1))};  // not trained
  at::Tensor scale{register_buffer("scale", torch::ones({1}))};
  at::Tensor kept = torch::zeros({1});
  std::vector<at::Tensor> list = {};
  std::vector<double> seen = {};

  Net() {
    const torch::NoGradGuard no_grad;
    teacher->weight.fill_(0.5);
    teacher->bias.zero_();
    make_optimizers = [](TinyModule& m) { return SGD(static_cast<Net&>(m).layer->parameters(), {.lr = 0.05}); };
  }
};

struct Outcome {
  Metrics metrics = {};
  std::vector<double> seen = {};
  std::vector<at::Tensor> weights = {};
};

Outcome run(bool record, const std::function<void(Net&)>& change) {
  torch::manual_seed(3);
  Net module;
  change(module);
  TrainerOptions options = quiet(3, {});
  options.num_sanity_val_steps = 0;
  options.record_steps = record;
  options.accumulate_grad_batches = module.accumulate;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(96), tiny_loader(48));
  Outcome outcome{.metrics = trainer.callback_metrics(), .seen = module.seen};
  for (const auto& parameter : module.layer->parameters()) outcome.weights.push_back(parameter.detach());
  return outcome;
}

// Returns what is printed about recordings.
std::string expect_same_numbers(const std::function<void(Net&)>& change) {
  const Outcome plain = run(false, change);
  const CapturedConsole console;
  const Outcome recorded = run(true, change);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_EQ(plain.seen, recorded.seen);
  for (size_t i = 0; i < plain.weights.size(); ++i) EXPECT_TRUE(torch::equal(plain.weights[i], recorded.weights[i]));
  return console.text();
}

// ---- what is logged -------------------------------------------------------------------------------------------------

TEST(RecordedNumbers, AValueIsLoggedAsItWasWhenLogWasCalled) {
  const std::string printed = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) {
      at::Tensor loss = net.loss_of(batch[0], batch[1]);
      net.log("error", loss, {.on_step = true, .on_epoch = true});
      net.log("bias", net.layer->bias, {.on_step = true, .on_epoch = true});
      return loss += net.layer->weight.pow(2).sum();
    };
    m.on_validation = [](Net& net, const Batch& batch) {
      at::Tensor loss = net.loss_of(batch[0], batch[1]);
      net.log("val_error", loss);
      loss += 100;
    };
  });
  EXPECT_EQ(printed, "");
}

TEST(RecordedNumbers, ALazilyNegatedValueIsLoggedWithItsSign) {
  const auto log_negated = [](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) {
      net.log("three", torch::_neg_view(torch::full({}, 3.0F)));
      return net.loss_of(batch[0], batch[1]);
    };
  };
  EXPECT_EQ(run(false, log_negated).metrics.at("three"), -3);
  (void)expect_same_numbers(log_negated);
}

// ---- what is kept ---------------------------------------------------------------------------------------------------

TEST(RecordedNumbers, ATensorThatAStepKeepsForLaterEndsItsRecording) {
  const std::string kept = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) {
      net.kept = net.layer->forward(batch[0]).detach();
      return torch::mse_loss(net.layer->forward(batch[0]), batch[1]);
    };
    m.after_batch = [](Net& net) { net.seen.push_back(net.kept.sum().item<double>()); };
  });
  EXPECT_TRUE(has(kept,
                  "TrainerOptions.record_steps: training_step keeps a tensor of 16 B of its batch, which the next "
                  "replay would overwrite"))
      << kept;
  const std::string listed = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) {
      const at::Tensor loss = net.loss_of(batch[0], batch[1]);
      net.list.push_back(loss.detach());
      return loss;
    };
    m.on_epoch = [](Net& net) {
      if (!net.list.empty()) net.seen.push_back(torch::stack(net.list).mean().item<double>());
      net.list.clear();
    };
  });
  EXPECT_TRUE(has(listed,
                  "TrainerOptions.record_steps: training_step keeps its loss, which the next replay would "
                  "overwrite; keep a clone of it"))
      << listed;
}

// The kept tensor shares memory with the run's, but is a different tensor.
TEST(RecordedNumbers, ViewsOfWhatAStepHasAreKeptAsTheyWere) {
  struct Kind {
    std::function<at::Tensor(const Batch&, const at::Tensor& output)> kept;
    const char* text;
  };
  const std::vector<Kind> kinds = {
      {[](const Batch& b, const at::Tensor&) { return b[1].detach(); }, "training_step keeps a tensor of its batch"},
      {[](const Batch& b, const at::Tensor&) { return b[0].slice(0, 1, 3); },
       "training_step keeps a tensor of its batch"},
      {[](const Batch&, const at::Tensor& output) { return output; }, "training_step keeps the output \"output\""},
      {[](const Batch&, const at::Tensor& output) { return output.detach().view({-1}); },
       "training_step keeps the output \"output\""}};
  for (const Kind& kind : kinds) {
    const std::string printed = expect_same_numbers([&](Net& m) {
      m.step = [&kind](Net& net, const Batch& batch, int64_t) {
        const at::Tensor output = net.layer->forward(batch[0]).detach();
        net.step_output("output", output);
        net.list.push_back(kind.kept(batch, output));
        return net.loss_of(batch[0], batch[1]);
      };
      m.after_batch = [](Net& net) {
        for (const at::Tensor& kept : net.list) net.seen.push_back(kept.sum().item<double>());
      };
    });
    EXPECT_TRUE(has(printed, kind.text)) << kind.text << "\n" << printed;
  }
}

TEST(RecordedNumbers, AGradientThatIsKeptAfterItsWindowKeepsItsNumbers) {
  for (const int64_t accumulate : {1, 3}) {
    const std::string printed = expect_same_numbers([=](Net& m) {
      m.accumulate = accumulate;
      m.after_batch = [](Net& net) {
        if (net.trainer().batch_idx() % 3 == 2) net.list.push_back(net.layer->weight.grad());
        for (const at::Tensor& kept : net.list) net.seen.push_back(kept.sum().item<double>());
      };
    });
    EXPECT_TRUE(has(printed, "the gradient of parameter 0 is kept after its window")) << printed;
  }
}

// ---- what changes inside an accumulation window ---------------------------------------------------------------------

TEST(RecordedNumbers, WhatChangesInsideAWindowIsFollowed) {
  struct Kind {
    const char* name;
    std::function<void(Net&, bool)> change;  // and back
  };
  const std::vector<Kind> kinds = {
      {"a frozen parameter", [](Net& m, bool there) { m.layer->bias.set_requires_grad(!there); }},
      {"weights in other memory",
       [](Net& m, bool there) {
         if (there) m.layer->weight.set_data(m.layer->weight.detach() * 2);
       }},
      {"a layer in another mode", [](Net& m, bool there) { m.teacher->train(!there); }},
      {"another gradient", [](Net& m, bool there) {
         if (there && m.layer->weight.grad().defined()) m.layer->weight.mutable_grad() = m.layer->weight.grad() * 3;
       }}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const std::string printed = expect_same_numbers([&](Net& m) {
      m.accumulate = 4;
      m.step = [](Net& net, const Batch& batch, int64_t) {
        return net.loss_of(batch[0], batch[1]) * (net.teacher->is_training() ? 1 : 2);
      };
      m.before_batch = [&kind](Net& net, int64_t batch_idx) {
        if (batch_idx == 18 || batch_idx == 21) kind.change(net, batch_idx == 18);  // windows begin at 16 and 20
      };
    });
    EXPECT_EQ(printed, "");
  }
}

TEST(RecordedNumbers, TheBatchBeforeIsReadAsItWas) {
  const std::string printed = expect_same_numbers([](Net& m) {
    m.kept = torch::zeros({4, 4});
    m.step = [](Net& net, const Batch& batch, int64_t) {
      const at::Tensor loss = net.loss_of(batch[0] + net.kept, batch[1]);
      net.kept = batch[0];
      return loss;
    };
  });
  EXPECT_TRUE(has(printed,
                  "TrainerOptions.record_steps: training_step keeps a tensor of its batch, whose memory the next "
                  "batch replaces"))
      << printed;
}

// ---- what is read ---------------------------------------------------------------------------------------------------

TEST(RecordedNumbers, TensorsThatHooksReplaceAreReadWhereTheyAre) {
  const std::string buffer = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) { return net.loss_of(batch[0], batch[1]) * net.scale.sum(); };
    m.on_epoch = [](Net& net) { net.scale.set_data(torch::full({1}, 1.0F + static_cast<float>(net.current_epoch()))); };
  });
  EXPECT_EQ(buffer, "");
  const std::string teacher = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) {
      return net.loss_of(batch[0], net.teacher->forward(batch[0]).detach());
    };
    m.on_epoch = [](Net& net) { net.teacher->weight.set_data(net.layer->weight.detach() * 2); };
  });
  EXPECT_EQ(teacher, "");
  const std::string member = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) { return net.loss_of(batch[0], batch[1]) * net.kept.sum(); };
    m.on_epoch = [](Net& net) { net.kept = torch::full({1}, 1.0F + static_cast<float>(net.current_epoch())); };
  });
  EXPECT_TRUE(has(member, "TrainerOptions.record_steps: batch 0 differs from the recorded step: aten::sum got"))
      << member;
}

TEST(RecordedNumbers, ATrainedTensorThatIsNotRegisteredIsRecordedToo) {
  const std::string printed = expect_same_numbers([](Net& m) {
    m.kept = torch::ones({1}).requires_grad_();
    m.make_optimizers = [](TinyModule& module) { return SGD({static_cast<Net&>(module).kept}, {.lr = 0.05}); };
    m.step = [](Net& net, const Batch& batch, int64_t) { return net.loss_of(batch[0] * net.kept, batch[1]); };
    m.on_epoch = [](Net& net) {
      net.seen.push_back(net.kept.item<double>());
      net.kept.set_data(net.kept.detach() * 2);
    };
  });
  EXPECT_FALSE(has(printed, "record_steps")) << printed;
}

TEST(RecordedNumbers, AGeneratorOfTheModulesOwnDrawsTheSame) {
  int64_t steps = 0;
  const auto change = [&](Net& m) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    m.step = [&steps, generator](Net& net, const Batch& batch, int64_t) {
      ++steps;
      const at::Tensor noise = at::randn({batch.size(), 4}, generator, at::kFloat);
      const at::Tensor mask = at::empty_like(batch[0]).bernoulli_(0.75, generator);
      return net.loss_of((batch[0] + 0.1 * noise) * mask, batch[1]);
    };
    m.after_batch = [generator](Net& net) { net.seen.push_back(at::rand({1}, generator).item<double>()); };
  };
  EXPECT_EQ(expect_same_numbers(change), "");
  EXPECT_LT(steps, 72 + 36) << "the plain run's 72, and the steps that recorded and checked";
}

TEST(RecordedNumbers, ACheckThatEndsARecordingLeavesSuchAGeneratorWhereTheStepDoes) {
  const std::string printed = expect_same_numbers([](Net& m) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    m.step = [generator](Net& net, const Batch& batch, int64_t batch_idx) {
      const at::Tensor noise = at::randn({batch.size(), 4}, generator, at::kFloat);
      return net.loss_of(batch[0] + (batch_idx >= 8 ? 0.2 : 0.1) * noise, batch[1]);
    };
    m.after_batch = [generator](Net& net) { net.seen.push_back(at::rand({1}, generator).item<double>()); };
  });
  EXPECT_TRUE(has(printed, "differs from the recorded step")) << printed;
}

TEST(RecordedNumbers, WhatAStepDoesOnceInAnEpochOrEverySixteenBatchesIsNoticed) {
  const std::string epoch = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t batch_idx) {
      const at::Tensor loss = net.loss_of(batch[0], batch[1]);
      return batch_idx == 0 ? loss * 2 : loss;
    };
  });
  EXPECT_TRUE(has(epoch, "batch 0 differs from the recorded step")) << epoch;
  const std::string sixteenth = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t batch_idx) {
      const at::Tensor loss = net.loss_of(batch[0], batch[1]);
      return batch_idx % 16 == 0 ? loss * 2 : loss;
    };
  });
  EXPECT_TRUE(has(sixteenth, "batch 16 differs from the recorded step")) << sixteenth;
}

TEST(RecordedNumbers, MemoryThatLibTorchDoesNotOwnIsRefused) {
  const std::string printed = expect_same_numbers([](Net& m) {
    m.step = [](Net& net, const Batch& batch, int64_t) {
      std::vector<float> numbers(4, 0.5F);
      return net.loss_of(batch[0] * torch::from_blob(numbers.data(), {4}), batch[1]);
    };
  });
  EXPECT_TRUE(has(printed, "aten::mul has memory that LibTorch does not own (torch::from_blob)")) << printed;
}

// ---- batches --------------------------------------------------------------------------------------------------------

TEST(RecordedNumbers, BatchesThatAreMoreThanTheirMemoryAreNotRecorded) {
  struct Kind {
    std::function<Batch(Net&, Batch)> transfer;
    const char* text;
  };
  const std::vector<Kind> kinds = {{[](Net&, const Batch& b) {
                                      return Batch({torch::_neg_view(b[0]), b[1]});
                                    },
                                    "is lazily conjugated or negated"},
                                   {[](Net&, const Batch& b) {
                                      return Batch({b[0].to_sparse(), b[1]});
                                    },
                                    "is not strided, as sparse ones are"},
                                   {[](Net& m, const Batch& b) {
                                      return Batch({b[0] * m.layer->weight, b[1]});
                                    },
                                    "requires a gradient"}};
  for (const Kind& kind : kinds) {
    const std::string printed = expect_same_numbers([&](Net& m) {
      m.transfer = kind.transfer;
      m.step = [](Net& net, const Batch& batch, int64_t) {
        const at::Tensor x = batch[0].is_sparse() ? batch[0].to_dense() : batch[0];
        return net.loss_of(x, batch[1]);
      };
    });
    EXPECT_TRUE(has(printed, std::string("TrainerOptions.record_steps: tensor 0 of the batch ") + kind.text))
        << printed;
  }
}

TEST(RecordedNumbers, AnEvaluationStepChangesItsBatchAsItDoesWithoutRecording) {
  std::vector<at::Tensor> batches;
  (void)expect_same_numbers([&](Net& m) {
    batches.clear();
    m.transfer = [&](Net& net, const Batch& b) {
      if (net.trainer().training()) return b;
      const auto index = static_cast<size_t>(net.trainer().batch_idx());
      while (batches.size() <= index) batches.push_back(b[0].clone());
      return Batch({batches[index], batches[index]});  // the same tensor in each epoch, twice
    };
    m.on_validation = [](Net& net, const Batch& b) {
      b[0].mul_(2);
      net.log("val_sum", b[0].sum() + b[1].sum());
    };
  });
}

}  // namespace
}  // namespace levin::recorded_numbers_test
