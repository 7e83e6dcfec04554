#include "levin/trainer/predict_outputs.h"

#include <utility>

#include "levin/trainer/run/run.h"
#include "levin/trainer/run/run_access.h"

namespace levin::detail {

OutputsTaken::OutputsTaken(Trainer& trainer, PredictedOutputs& taken)
    : trainer_(trainer), before_(std::exchange(RunAccess::of(trainer).taken_outputs, &taken)) {}

OutputsTaken::~OutputsTaken() {
  RunAccess::of(trainer_).taken_outputs = before_;
}

}  // namespace levin::detail
