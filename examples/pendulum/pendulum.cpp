// A simulator that trains a surrogate of itself while it runs, on several MPI ranks:
//
//   mpirun -n 2 pendulum CHECKPOINT
//
// On each rank one thread simulates pendulums and pushes their states into a queue, from which main() trains. MPI is
// the simulator's: its thread sums energies over ranks, while Levin reduces gradients over the same ranks. pendulum.f90
// does the same in Fortran and ends with the same weights.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numbers>
#include <string>
#include <thread>
#include <vector>

#include "simulator.h"
#include "surrogate.h"

namespace pendulum {
namespace {

constexpr int kPendulums = 32;  // of all ranks together
constexpr int kBatches = 1000;
constexpr int kBatchesPerReport = 250;
constexpr int64_t kStepsPerBatch = 8;
constexpr int64_t kHeldOut = 1000;  // the number of a pendulum that no rank trains on
constexpr int64_t kHeldOutSteps = 100;

void report(const char* action, int batch, const char* name, double value) {
  std::printf("%s %d batches: %s %.9f\n", action, batch, name, value);
  std::fflush(stdout);
}

at::Tensor tensor_of(const std::vector<float>& values, int64_t columns) {
  return torch::tensor(values).view({-1, columns});
}

// The simulator's thread. Each rank simulates its part of the pendulums.
void run_simulator(const levin::QueueProducer& producer) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<Pendulum> pendulums;
  for (int k = rank; k < kPendulums; k += ranks) pendulums.emplace_back(k);
  for (int batch = 1; batch <= kBatches; ++batch) {
    const Samples samples = simulate(pendulums, kStepsPerBatch);
    if (!producer.push_batch({tensor_of(samples.states, 3), tensor_of(samples.next, 2)})) return;
    if (batch % kBatchesPerReport != 0) continue;
    double energy = 0;
    for (const Pendulum& each : pendulums) energy += each.energy() / kPendulums;
    MPI_Allreduce(MPI_IN_PLACE, &energy, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) report("simulated", batch, "mean energy", energy);
  }
  producer.close();
}

// Returns the root mean square distance of states; angles differ by half a turn at most.
double error_of(const at::Tensor& predicted, const at::Tensor& truth) {
  const at::Tensor difference = predicted - truth;
  const at::Tensor angle =
      torch::remainder(difference.select(1, 0) + std::numbers::pi, 2 * std::numbers::pi) - std::numbers::pi;
  return (angle.square() + difference.select(1, 1).square()).mean().sqrt().item<double>();
}

// Predicts a trajectory from its first state, with the torques of the simulator.
at::Tensor roll_out(levin::Fabric& fabric, const at::Tensor& states) {
  std::vector<at::Tensor> path{states.slice(0, 0, 1).slice(1, 0, 2)};
  for (int64_t k = 0; k + 1 < states.size(0); ++k) {
    path.push_back(fabric.predict({torch::cat({path.back(), states.slice(0, k, k + 1).slice(1, 2, 3)}, 1)}));
  }
  return torch::cat(path);
}

// Compares predictions of a trajectory that no rank has trained on with what the simulator computes.
void test(levin::Fabric& fabric) {
  std::vector<Pendulum> held_out{Pendulum(kHeldOut)};
  const Samples samples = simulate(held_out, kHeldOutSteps);
  const at::Tensor states = tensor_of(samples.states, 3);
  const at::Tensor now = states.slice(1, 0, 2);
  const at::Tensor truth = tensor_of(samples.next, 2).slice(0, 1);  // from the second step on: a line needs two states
  const auto print = [&](const char* name, double error) {
    if (fabric.is_global_zero()) std::printf("error of %s: %.6f\n", name, error);
  };
  print("the surrogate", error_of(fabric.predict({states}).slice(0, 1), truth));
  print("a straight line", error_of(2 * now.slice(0, 1) - now.slice(0, 0, -1), truth));
  print("the unchanged state", error_of(now.slice(0, 1), truth));
  print("the surrogate alone", error_of(roll_out(fabric, states), now));
}

// Returns the largest difference of a weight between two ranks. The simulator no longer calls MPI.
double difference_between_ranks(const Surrogate& model) {
  double largest = 0;
  for (const at::Tensor& weight : model.parameters()) {
    const at::Tensor least = weight.detach().clone();
    const at::Tensor most = weight.detach().clone();
    const int count = static_cast<int>(weight.numel());
    MPI_Allreduce(MPI_IN_PLACE, least.data_ptr(), count, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, most.data_ptr(), count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    largest = std::max(largest, (most - least).max().item<double>());
  }
  return largest;
}

void train(levin::QueueLoader& queue, const std::string& checkpoint) {
  levin::seed_everything(1);
  Surrogate model;
  levin::Fabric fabric({.accelerator = "cpu", .num_threads = 1});
  fabric.launch();  // joins the ranks that mpirun has started
  (void)fabric.setup(model, {levin::AdamW(model.parameters(), {.lr = 0.015}),
                             levin::CosineAnnealingLR({.T_max = kBatches}),
                             {.interval = "step"}});
  auto loader = fabric.setup_dataloaders(queue);
  int trained = 0;
  for (const levin::Batch& batch : loader.epoch(0)) {
    const at::Tensor loss = fabric.step(batch);
    if (++trained % kBatchesPerReport != 0) continue;
    const double mean = fabric.all_reduce(loss).item<double>();
    if (fabric.is_global_zero()) report("trained", trained, "loss", mean);
  }
  test(fabric);
  const double difference = difference_between_ranks(model);
  if (fabric.is_global_zero()) std::printf("largest difference between the ranks' weights: %.6f\n", difference);
  fabric.save(checkpoint);
  fabric.finish();
}

}  // namespace
}  // namespace pendulum

int main(int argc, char** argv) {
  int threads = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &threads);
  if (argc != 2 || threads < MPI_THREAD_SERIALIZED) {
    std::fprintf(stderr, "usage: mpirun -n RANKS pendulum CHECKPOINT, with an MPI that several threads may call\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  {
    levin::QueueLoader queue({.capacity = 4});
    std::thread simulator(pendulum::run_simulator, queue.producer());
    try {
      pendulum::train(queue, argv[1]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "pendulum: %s\n", error.what());
      MPI_Abort(MPI_COMM_WORLD, 1);  // ends the other ranks too, which would wait for this one
    }
    simulator.join();
  }
  MPI_Finalize();
}
