#include "xlmr_full_size.h"

#include <algorithm>
#include <stdexcept>

#include "levin/recompute/chain_plan.h"
#include "levin/trainer/loops/entry.h"

namespace bench::xlmr {

namespace {

// Measures eight and four sequences: errors in their times double in the extrapolation to sixteen.
levin::MeasuredChain measure_layers(Column column, const Size& size) {
  column.batch = 8;
  column.recompute = false;
  levin::seed_everything(0);
  TextClassifier model(model_options(column, size));
  BibleVerses data(data_options(column, size));
  levin::Trainer trainer(trainer_options(column, size));
  return levin::measure_fit(trainer, model, &data)->chain;
}

// All layers are alike: the last one is there as often as it takes.
levin::ChainCost deepened(levin::ChainCost cost, int64_t layers) {
  const auto is_layer = [](const levin::BlockCost& block) { return block.chain != levin::kFixedBlock; };
  const int64_t more = layers - std::count_if(cost.blocks.begin(), cost.blocks.end(), is_layer);
  const auto after_last = std::find_if(cost.blocks.rbegin(), cost.blocks.rend(), is_layer).base();
  if (after_last == cost.blocks.begin() || more < 0) throw std::runtime_error("xlmr: no layers were measured.");
  const levin::BlockCost layer = *(after_last - 1);
  const auto whole = static_cast<double>(cost.gradients + more * layer.gradients) / static_cast<double>(cost.gradients);
  const int64_t added = more * layer.gradients;  // bytes of their weights too
  cost.blocks.insert(after_last, static_cast<size_t>(more), layer);
  cost.parameters += added;
  cost.gradients += added;
  cost.optimizer_state = static_cast<int64_t>(static_cast<double>(cost.optimizer_state) * whole);
  cost.optimizer_s *= whole;
  return cost;
}

}  // namespace

Cost predict_full_size(const Column& column, const Size& size) {
  const levin::MeasuredChain measured = measure_layers(column, size);
  const int64_t layers = EncoderShape::of(column.architecture).num_hidden_layers;
  const levin::ChainCost cost = deepened(levin::at_batch(measured.cost, measured.smaller, column.batch), layers);
  const auto step = levin::predict_memory(cost, column.recompute ? levin::each_block(cost) : levin::Segments());
  const auto without = levin::predict_memory(cost, {});
  return {.ms_a_step = step.seconds * 1e3,
          .ms_without = without.seconds * 1e3,
          .peak_mib = static_cast<double>(step.peak) / (1 << 20)};
}

}  // namespace bench::xlmr
