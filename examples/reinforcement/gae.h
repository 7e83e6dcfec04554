// Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438).
#pragma once

#include <torch/torch.h>

namespace reinforcement {

// Returns the advantages, (steps, n), of n environments that advance together:
//   A_t = d_t + gamma lambda A_{t+1},  d_t = r_t + gamma V_{t+1} - V_t,  with A_{t+1} = V_{t+1} = 0 where an episode
//   ends.
// `rewards`, `values` and `ends` (bool, the episode ends with this step): (steps, n). `last_values`: (n), after the
// last step. An episode that only a limit of steps ends has a future: add gamma V of its last observation to its last
// reward.
inline torch::Tensor advantages_of(const torch::Tensor& rewards, const torch::Tensor& values, const torch::Tensor& ends,
                                   const torch::Tensor& last_values, double gamma, double lambda) {
  const torch::Tensor goes_on = ends.logical_not().to(values.scalar_type());
  torch::Tensor advantages = torch::empty_like(values);
  torch::Tensor next_value = last_values, next_advantage = torch::zeros_like(last_values);
  for (int64_t t = values.size(0) - 1; t >= 0; --t) {
    const torch::Tensor error = rewards[t] + gamma * next_value * goes_on[t] - values[t];
    next_advantage = error + gamma * lambda * goes_on[t] * next_advantage;
    advantages[t] = next_advantage;
    next_value = values[t];
  }
  return advantages;
}

}  // namespace reinforcement
