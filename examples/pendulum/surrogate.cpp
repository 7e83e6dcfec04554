// The plugin that pendulum.yaml names.
#include "surrogate.h"

namespace pendulum {

LEVIN_REGISTER_MODEL(Surrogate, "predicts a pendulum's next state");

}  // namespace pendulum
