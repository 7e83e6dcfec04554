#!/usr/bin/env bash
# Runs a command on the simulated GPU (docs/simulated_gpu.md), with the variables of settings.h:
#   tests/support/simulated_gpu/run.sh build/release/bin/levin fit --config configs/gpt.yaml --trainer.accelerator=gpu
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
built=$root/build/release/tests/simulated_gpu
if [ ! -e "$built/liblevin_simulated_operators.so" ]; then
  echo "run.sh: the simulated GPU was not built. Build it with: LEVIN_CUDA=1 ./dev build release cuda_test" >&2
  exit 3
fi
export LD_LIBRARY_PATH="$built${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SIMULATED_GPU_OPERATORS=${SIMULATED_GPU_OPERATORS-$built/liblevin_simulated_operators.so}
LD_PRELOAD=$built/liblevin_simulated_gpu.so exec "$@"
