// Which segments the names of trainer.recompute mean.
#include "levin/recompute/segment_names.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "recompute/segments.h"

namespace levin::segment_names_test {
namespace {

using test::error_of;
using test::expect_parts;
using Names = std::vector<std::string>;

// h: a list of six blocks, each with fc and norm; net: a Sequential of four; fc_1, fc_2, pred: children of the root.
struct Model : torch::nn::Module {
  Model() {
    torch::nn::ModuleList list;
    for (int k = 0; k < 6; ++k) {
      auto block = std::make_shared<torch::nn::Module>("Block");
      block->register_module("fc", torch::nn::Linear(1, 1));
      block->register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({1})));
      list->push_back(block);
    }
    register_module("h", list);
    register_module("net", torch::nn::Sequential(torch::nn::Linear(1, 1), torch::nn::ReLU(), torch::nn::Linear(1, 1),
                                                 torch::nn::ReLU()));
    for (const char* name : {"fc_1", "fc_2", "pred"}) register_module(name, torch::nn::Linear(1, 1));
  }
};

Names names_of(const RecomputeOptions& options) {
  const Model model;
  Names names;
  for (const auto& segment : named_segments(model, options)) names.push_back(segment.name);
  return names;
}

std::string problem_of(const RecomputeOptions& options) {
  return error_of([&] { (void)names_of(options); });
}

TEST(SegmentNames, APatternMeansEachSubmoduleItMatchesAndNothingWithin) {
  EXPECT_EQ(names_of({.modules = {"h.[0-2]", "pred"}}), (Names{"h.0", "h.1", "h.2", "pred"}));
  EXPECT_EQ(names_of({.modules = {"h.*"}}), (Names{"h.0", "h.1", "h.2", "h.3", "h.4", "h.5"}));
  EXPECT_EQ(names_of({.modules = {"h.1.*", "h.1.fc"}}), (Names{"h.1.fc", "h.1.norm"}));
}

TEST(SegmentNames, ASequentialOrAListMeansAllOfItsBlocksTogether) {
  EXPECT_EQ(names_of({.modules = {"net"}}), (Names{"net.0..net.3"}));
  EXPECT_EQ(names_of({.modules = {"h"}}), (Names{"h.0..h.5"}));
}

TEST(SegmentNames, ARangeMeansItsBlocksTogether) {
  const Model model;
  const auto segments = named_segments(model, {.modules = {"h.2..h.4", "net.1..net.1", "fc_1..pred"}});
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].name, "h.2..h.4");
  EXPECT_EQ(segments[0].modules.size(), 3U);
  EXPECT_EQ(segments[0].modules[1], model.named_modules("", /*include_self=*/false)["h.3"].get());
  EXPECT_EQ(segments[1].name, "net.1");
  EXPECT_EQ(segments[2].modules.size(), 3U);
}

// torch.utils.checkpoint.checkpoint_sequential: parts of n / k blocks, and the last one, with the rest, is left.
TEST(SegmentNames, SegmentsCutAsPyTorchDoes) {
  EXPECT_EQ(names_of({.modules = {"h"}, .segments = 2}), (Names{"h.0..h.2"}));
  EXPECT_EQ(names_of({.modules = {"h"}, .segments = 4}), (Names{"h.0", "h.1", "h.2"}));
  EXPECT_EQ(names_of({.modules = {"h", "net"}, .segments = 2}), (Names{"h.0..h.2", "net.0..net.1"}));
  EXPECT_EQ(names_of({.modules = {"net"}, .segments = 1}), Names{});
}

TEST(SegmentNames, CheckpointsEndSegmentsAndTheRestIsLeft) {
  EXPECT_EQ(names_of({.checkpoints = {"h.3", "h.1"}}), (Names{"h.0..h.1", "h.2..h.3"}));
  EXPECT_EQ(names_of({.checkpoints = {"net.2", "h.0"}}), (Names{"h.0", "net.0..net.2"}));
}

TEST(SegmentNames, ACheckpointMayBeTheLastPartOfAName) {
  struct Article : torch::nn::Module {
    Article() {
      register_module("net", torch::nn::Sequential({{"fc_1", torch::nn::AnyModule(torch::nn::Linear(1, 1))},
                                                    {"act", torch::nn::AnyModule(torch::nn::ReLU())},
                                                    {"fc_2", torch::nn::AnyModule(torch::nn::Linear(1, 1))},
                                                    {"pred", torch::nn::AnyModule(torch::nn::Linear(1, 1))}}));
    }
  };
  Names names;
  for (const auto& segment : named_segments(Article(), {.checkpoints = {"fc_1", "pred"}}))
    names.push_back(segment.name);
  EXPECT_EQ(names, (Names{"net.fc_1", "net.act..net.pred"}));
}

TEST(SegmentNames, MayLieWithinEachOtherButNotOverlap) {
  EXPECT_EQ(names_of({.modules = {"h.0..h.3", "h.1", "h.2..h.3", "h.2.fc"}}),
            (Names{"h.0..h.3", "h.1", "h.2..h.3", "h.2.fc"}));
  expect_parts(problem_of({.modules = {"h.0..h.2", "h.2..h.4"}}),
               {"TrainerOptions.recompute: h.0..h.2 and h.2..h.4 share some blocks and not others",
                "Let one end where the other begins"});
}

TEST(SegmentNames, SayWhatIsWrongAllTogether) {
  const std::string text =
      problem_of({.modules = {"g.*", "h.4..h.2", "h.0..net.1", "h.0..h.9"}, .checkpoints = {"pret"}});
  expect_parts(text, {"TrainerOptions.recompute.modules[0]: no submodule's name matches \"g.*\"", "h.5.norm",
                      "modules[1]: h.4..h.2 is not a range", "modules[2]: h.0..net.1 is not a range",
                      "as in layers.2..layers.5", "modules[3]: no submodule's name matches \"h.9\"",
                      "TrainerOptions.recompute.checkpoints[0]: no submodule's name matches \"pret\"",
                      "Did you mean \"pred\"?"});
  expect_parts(problem_of({.modules = {"net"}, .segments = 5}),
               {"TrainerOptions.recompute.segments: net has 4 blocks, too few for 5 segments. Give 1 to 4."});
  expect_parts(problem_of({.modules = {"pred"}, .segments = 2}),
               {"modules[0]: pred is a torch::nn::LinearImpl", "segments cuts a Sequential or a list of blocks"});
  expect_parts(problem_of({.modules = {"h.0..h.1"}, .segments = 2}), {"a range is one segment", "name h"});
  expect_parts(problem_of({.segments = 2}), {"segments: there is nothing to cut"});
}

}  // namespace
}  // namespace levin::segment_names_test
