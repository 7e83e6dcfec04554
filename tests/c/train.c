/* Trains the model of a run file on fixed numbers, and prints its weights as hexadecimal digits. Argument: the run
 * file. train.f90, train.py and trained_by_trainer.cpp do the same. */
#include <levin/c/levin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 8, FEATURES = 4, BATCHES = 5, EPOCHS = 2 };

static void check(levin_status status) {
  if (status == LEVIN_OK) return;
  printf("status %d: %s\n", (int)status, levin_last_error());
  exit(1);
}

static void train_on_batch(levin_run* run, int batch) {
  static const int64_t x_shape[] = {SAMPLES, FEATURES};
  static const int64_t y_shape[] = {SAMPLES, 1};
  float x[SAMPLES][FEATURES];
  float y[SAMPLES];
  levin_tensor* tensors[] = {NULL, NULL};
  double loss = 0;
  for (int i = 0; i < SAMPLES; ++i) {
    const int number = batch * SAMPLES + i;
    for (int j = 0; j < FEATURES; ++j) x[i][j] = (float)((7 * number + 3 * j) % 16) / 8 - 1;
    y[i] = (float)((5 * number) % 8) / 8;
  }
  check(levin_tensor_from_data(x, LEVIN_FLOAT32, 2, x_shape, NULL, &tensors[0]));
  check(levin_tensor_from_data(y, LEVIN_FLOAT32, 2, y_shape, NULL, &tensors[1]));
  check(levin_run_step(run, tensors, NULL, 2, &loss));
  check(levin_tensor_free(tensors[0]));
  check(levin_tensor_free(tensors[1]));
}

static void print_weight(levin_run* run, int32_t index) {
  const char* name = NULL;
  levin_tensor* weight = NULL;
  levin_view view;
  int64_t size = 1;
  check(levin_run_weight_name(run, index, &name));
  check(levin_run_get_weight(run, name, &weight));
  check(levin_tensor_view(weight, &view));
  for (int32_t k = 0; k < view.ndim; ++k) size *= view.shape[k];
  printf("%s", name);
  for (int64_t k = 0; k < size; ++k) {
    uint32_t bits;
    memcpy(&bits, (const float*)view.data + k, sizeof bits);
    printf(" %08X", (unsigned)bits);
  }
  printf("\n");
  check(levin_tensor_free(weight));
}

int main(int argc, char** argv) {
  levin_run* run = NULL;
  int32_t count = 0;
  if (argc != 2) return 2;
  check(levin_init(LEVIN_ABI_VERSION));
  check(levin_run_create(argv[1], NULL, 0, &run));
  for (int epoch = 0; epoch < EPOCHS; ++epoch) {
    for (int batch = 0; batch < BATCHES; ++batch) train_on_batch(run, batch);
    check(levin_run_end_epoch(run));
  }
  check(levin_run_weight_count(run, &count));
  for (int32_t k = 0; k < count; ++k) print_weight(run, k);
  check(levin_run_finish(run));
  check(levin_run_free(run));
  return levin_live_handles() == 0 ? 0 : 3;
}
