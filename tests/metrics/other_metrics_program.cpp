// The values of the cases in a file that record_other_cases.py wrote, one line of JSON each: [one rank's, two ranks'].
#include <cstdio>
#include <exception>

#include "metrics/other_cases.h"

namespace other_metrics_program {
namespace {

nlohmann::json written(const at::Tensor& value) {
  nlohmann::json values = nlohmann::json::array();
  const at::Tensor flat = value.to(at::kDouble).reshape(-1);
  for (int64_t i = 0; i < flat.numel(); ++i) {  // nan is written as null
    const double number = flat[i].item<double>();
    values.push_back(std::isinf(number) ? nlohmann::json(number > 0 ? "inf" : "-inf") : nlohmann::json(number));
  }
  return values;
}

}  // namespace

int run_program(int argc, char** argv) {
  using namespace levin::other_cases;
  try {
    const Json all = read_cases(argc > 1 ? argv[1] : "");
    const auto grid = all.at("grid").get<double>();
    for (const auto& one : all.at("cases")) {
      std::puts(Json::array({written(run_case(one, grid, 1)), written(run_case(one, grid, 2))}).dump().c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace other_metrics_program
