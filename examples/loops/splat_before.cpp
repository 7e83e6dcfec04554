// Fits Gaussians to a picture with LibTorch alone, as OpenSplat (https://github.com/pierotofy/OpenSplat) does for a
// scene: an optimizer for each field, and tensors that are replaced while it runs, with the optimizers' state.
//
//   splat_before
#include <torch/torch.h>

#include <array>
#include <iostream>
#include <memory>
#include <random>

#include "checksum.h"
#include "splat.h"

namespace {

using torch::optim::Adam;
using torch::optim::AdamParamState;

struct Field {
  torch::Tensor* tensor;
  std::unique_ptr<Adam> optimizer;
};

Field make_field(torch::Tensor& tensor, double rate) {
  return {&tensor, std::make_unique<Adam>(std::vector<torch::Tensor>{tensor}, rate)};
}

torch::Tensor select_state(const torch::Tensor& state, const Refinement& plan) {
  torch::Tensor selected = state.index_select(0, plan.rows);
  selected.narrow(0, plan.kept, selected.size(0) - plan.kept).zero_();
  return selected;
}

void select_rows(Field& field, const Refinement& plan) {
  const torch::Tensor old = *field.tensor;
  *field.tensor = old.detach().index_select(0, plan.rows).requires_grad_();
  auto& states = field.optimizer->state();
  const auto found = states.find(old.unsafeGetTensorImpl());
  auto state = std::make_unique<AdamParamState>(static_cast<AdamParamState&>(*found->second));
  state->exp_avg(select_state(state->exp_avg(), plan));
  state->exp_avg_sq(select_state(state->exp_avg_sq(), plan));
  states.erase(found);
  states[field.tensor->unsafeGetTensorImpl()] = std::move(state);
  field.optimizer->param_groups()[0].params()[0] = *field.tensor;
}

}  // namespace

int main() {
  torch::manual_seed(1);
  Splats splats = random_splats();
  std::array<Field, 5> fields{make_field(splats.means, means_rate(0)), make_field(splats.scales, 5e-3),
                              make_field(splats.angles, 5e-3), make_field(splats.colours, 2e-2),
                              make_field(splats.opacities, 2e-2)};
  const std::vector<View> views = views_of_picture();
  std::mt19937 generator(1);
  torch::Tensor gradients = torch::zeros({splats.means.size(0)});

  for (int64_t step = 0; step < kSteps; ++step) {
    const View& view = views[generator() % views.size()];
    fields[0].optimizer->param_groups()[0].options().set_lr(means_rate(step));
    for (Field& field : fields) field.optimizer->zero_grad();
    const torch::Tensor loss = loss_of(splats, view.points, view.colours);
    loss.backward();
    for (Field& field : fields) field.optimizer->step();

    gradients += splats.means.grad().norm(2, 1);
    if ((step + 1) % kRefineEvery == 0) {
      const Refinement plan = plan_refinement(splats, gradients);
      for (Field& field : fields) select_rows(field, plan);
      place_halves(splats, plan);
      gradients = torch::zeros({splats.means.size(0)});
    }
    if ((step + 1) % kReportEvery == 0) {
      std::cout << "step " << step + 1 << ": " << splats.means.size(0) << " splats, loss " << loss.item<float>()
                << std::endl;
    }
  }
  std::vector<torch::Tensor> result;
  for (const Field& field : fields) result.push_back(*field.tensor);
  torch::save(result, "splats.pt");
  std::cout << "weights " << checksum(result) << std::endl;
}
