// The values of the cases in a file that record_cases.py wrote, one line of JSON each: [one rank's, two ranks'].
#include <cstdio>
#include <exception>

#include "metrics/classification_cases.h"

namespace classification_program {
namespace {

nlohmann::json written(const at::Tensor& value) {
  nlohmann::json values = nlohmann::json::array();
  const at::Tensor flat = value.to(at::kDouble).reshape(-1);
  for (int64_t i = 0; i < flat.numel(); ++i) values.push_back(flat[i].item<double>());  // NaN is written as null
  return values;
}

}  // namespace

int run_program(int argc, char** argv) {
  using namespace levin::testing;
  try {
    const nlohmann::json all = read_cases(argc > 1 ? argv[1] : "");
    for (const auto& one : all.at("cases")) {
      const Batches batches = batches_of(all.at("inputs").at(one.at("input").get<std::string>()));
      const auto name = one.at("metric").get<std::string>();
      const at::Tensor value = value_of(*make_metric(name, one.at("options")), batches);
      const at::Tensor merged = value_of_two_ranks(name, one.at("options"), batches);
      std::puts(nlohmann::json::array({written(value), written(merged)}).dump().c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace classification_program
