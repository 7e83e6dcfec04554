// The loop of splat_before.cpp over levin::Fabric. A program that was killed continues when it is started again.
//
//   splat
#include "splat.h"

#include <levin/levin.h>

#include <filesystem>
#include <iostream>
#include <random>

#include "checksum.h"

namespace {

// The splats stay in their struct; this names them for checkpoints.
struct SplatModule : torch::nn::Module {
  explicit SplatModule(const Splats& splats) {
    register_parameter("means", splats.means);
    register_parameter("scales", splats.scales);
    register_parameter("angles", splats.angles);
    register_parameter("colours", splats.colours);
    register_parameter("opacities", splats.opacities);
  }
};

torch::optim::OptimizerParamGroup group(const torch::Tensor& tensor, double rate) {
  return {{tensor}, std::make_unique<torch::optim::AdamOptions>(rate)};
}

}  // namespace

int main() {
  return levin::main_guard([] {
    torch::manual_seed(1);
    Splats splats = random_splats();
    const std::vector<View> views = views_of_picture();
    std::mt19937 generator(1);
    torch::Tensor gradients = torch::zeros({splats.means.size(0)});

    levin::Fabric fabric({.loggers = levin::CSVLogger()});
    SplatModule module(splats);
    auto optimizer = fabric.setup(
        module,
        torch::optim::Adam({group(splats.means, means_rate(0)), group(splats.scales, 5e-3), group(splats.angles, 5e-3),
                            group(splats.colours, 2e-2), group(splats.opacities, 2e-2)}));
    if (std::filesystem::exists("last.ckpt")) {
      const levin::State user = fabric.load("last.ckpt");
      generator = user.get<std::mt19937>("generator");
      gradients = user.tensor("gradients");
    }

    for (int64_t step = fabric.global_step(); step < kSteps; ++step) {
      const View& view = views[generator() % views.size()];
      optimizer.optimizer().param_groups()[0].lr = means_rate(step);
      const torch::Tensor loss = fabric.step(
          {view.points, view.colours}, [&](const levin::Batch& batch) { return loss_of(splats, batch[0], batch[1]); });

      gradients += splats.means.grad().norm(2, 1);
      if ((step + 1) % kRefineEvery == 0) {
        const Refinement plan = plan_refinement(splats, gradients);
        optimizer.select_rows(module.parameters(), plan.rows, plan.kept);
        place_halves(splats, plan);
        gradients = torch::zeros({splats.means.size(0)});
      }
      if ((step + 1) % kReportEvery == 0) {
        fabric.log("loss", loss);
        fabric.log("splats", static_cast<double>(splats.means.size(0)));
        levin::State user;
        user.set("generator", generator);
        user.tensors["gradients"] = gradients;
        fabric.save("last.ckpt", user);
        std::cout << "step " << step + 1 << ": " << splats.means.size(0) << " splats, loss " << loss.item<float>()
                  << std::endl;
      }
    }
    std::cout << "weights " << checksum(module.parameters()) << std::endl;
  });
}
