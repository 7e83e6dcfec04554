/* Levin for C99, and through C for Fortran (levin.f90), Python's ctypes and other languages: trains a model of a run
 * file, one batch at a time, by calls of the program's own loop. docs/c_api.md is the manual.
 *
 *   #include <levin/c/levin.h>                                              link levin_c
 *
 *   levin_run* run = NULL;
 *   if (levin_init(LEVIN_ABI_VERSION) != LEVIN_OK || levin_run_create("run.yaml", NULL, 0, &run) != LEVIN_OK)
 *     return fail(levin_last_error());
 *   for (...) {
 *     levin_tensor* batch[2] = {NULL, NULL};
 *     levin_tensor_from_data(x, LEVIN_FLOAT32, 2, x_shape, NULL, &batch[0]);
 *     levin_tensor_from_data(y, LEVIN_FLOAT32, 2, y_shape, NULL, &batch[1]);
 *     if (levin_run_step(run, batch, NULL, 2, &loss) != LEVIN_OK) return fail(levin_last_error());
 *     levin_tensor_free(batch[0]);
 *     levin_tensor_free(batch[1]);
 *   }
 *   levin_run_save(run, "last.ckpt");
 *   levin_run_finish(run);
 *   levin_run_free(run);
 *
 * Ownership: a handle that a function returns belongs to the caller, who frees it once. Levin copies every text and
 * array that it is given, except the memory of tensors: levin_tensor_from_data refers to the caller's memory, which
 * must stay valid until the tensor is freed, and levin_tensor_from_dlpack takes the DLPack tensor over if it succeeds.
 * Texts and arrays that Levin returns belong to Levin, until the time that their function states.
 *
 * Errors: every function that returns a levin_status sets the text of levin_last_error(), which is empty after
 * LEVIN_OK. An output is written only if the function succeeds. No function throws, ends the program, or writes through
 * a handle that is null, was freed or is of the other type: these are LEVIN_INVALID_ARGUMENT.
 *
 * Threads: every function may be called on every thread, also at the same time. Calls for one run are executed one
 * after another, on a thread that belongs to the run. After fork(), the child can use no run of its parent. */
#ifndef LEVIN_C_LEVIN_H
#define LEVIN_C_LEVIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; it changes if a program that was compiled earlier must be compiled again. */
#define LEVIN_ABI_VERSION 1

typedef int32_t levin_status;
enum {
  LEVIN_OK = 0,
  LEVIN_INVALID_ARGUMENT = 1, /* a handle, pointer or number that the function cannot take */
  LEVIN_CONFIG_ERROR = 2,     /* mistakes in the run file or its overrides; nothing was created */
  LEVIN_RUN_ERROR = 3,        /* the run failed: in the model, a callback, a logger, or another rank */
  LEVIN_CHECKPOINT_ERROR = 4, /* a checkpoint cannot be written, read or trusted */
  LEVIN_NONFINITE_LOSS = 5,   /* a loss or a gradient is nan or inf */
  LEVIN_OUT_OF_MEMORY = 6,    /* of this machine or its GPU */
  LEVIN_WRONG_VERSION = 7     /* levin_init was not called, or with a different LEVIN_ABI_VERSION */
};

typedef int32_t levin_dtype;
enum {
  LEVIN_FLOAT32 = 1,
  LEVIN_FLOAT64 = 2,
  LEVIN_FLOAT16 = 3,
  LEVIN_BFLOAT16 = 4,
  LEVIN_INT8 = 5,
  LEVIN_INT16 = 6,
  LEVIN_INT32 = 7,
  LEVIN_INT64 = 8,
  LEVIN_UINT8 = 9,
  LEVIN_BOOL = 10 /* one byte, 0 or 1 */
};

/* Handles. Their values are not addresses. */
typedef struct levin_run levin_run;
typedef struct levin_tensor levin_tensor;

/* A tensor's memory. shape and strides have ndim elements and are valid until the tensor is freed. */
typedef struct {
  void* data;             /* the first element; null if there is none */
  const int64_t* shape;   /* null if ndim is 0 */
  const int64_t* strides; /* in elements */
  levin_dtype dtype;
  int32_t ndim;
  int32_t device_type; /* as in DLPack: 1 is the CPU, 2 is CUDA */
  int32_t device_index;
} levin_view;

struct DLManagedTensor; /* of dlpack.h, whose layout it has */

/* ---- the library ------------------------------------------------------------------------------------------------- */
/* Returns the LEVIN_ABI_VERSION that the library was built with. */
int32_t levin_abi_version(void);
/* Returns Levin's version, "0.2.0"; valid until the program ends. */
const char* levin_version(void);
/* Checks the version that the program was compiled with. Called first, once or more often. */
levin_status levin_init(int32_t abi_version);
/* Returns what the last call on this thread did wrong, one problem a line; valid until the next call on this thread. */
const char* levin_last_error(void);
/* Returns the number of handles that exist: 0 once everything is freed. */
int64_t levin_live_handles(void);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */
/* Makes a tensor of the caller's memory on the CPU, without a copy. strides: null for rows one after another; otherwise
 * >= 0, in elements. data: may be null if the tensor has no elements. */
levin_status levin_tensor_from_data(void* data, levin_dtype dtype, int32_t ndim, const int64_t* shape,
                                    const int64_t* strides, levin_tensor** out);
/* Makes a tensor of a DLPack tensor, without a copy, and calls its deleter once nothing refers to the memory. */
levin_status levin_tensor_from_dlpack(struct DLManagedTensor* managed, levin_tensor** out);
/* Makes a DLPack tensor without a copy. It keeps the memory alive, also after the handle is freed; the caller calls its
 * deleter. */
levin_status levin_tensor_to_dlpack(const levin_tensor* tensor, struct DLManagedTensor** out);
/* Describes the memory of a tensor; of a prediction and of a weight, it is contiguous and on the CPU. */
levin_status levin_tensor_view(const levin_tensor* tensor, levin_view* out);
/* Null is allowed, and does nothing. */
levin_status levin_tensor_free(levin_tensor* tensor);

/* ---- a run ------------------------------------------------------------------------------------------------------- */
/* Makes the model, optimizer and learning-rate schedulers of a run file, with its seed. arguments: count texts, as
 * after `levin fit --config FILE`: "--trainer.precision=bf16-mixed", "--config=more.yaml". */
levin_status levin_run_create(const char* path, const char* const* arguments, int32_t count, levin_run** out);
/* Same as above; yaml is the run file's text. */
levin_status levin_run_create_from_text(const char* yaml, const char* const* arguments, int32_t count, levin_run** out);
/* Ends the run: waits for its checkpoints and loggers. Afterwards weights, metrics and counters can be read, and the
 * run can be freed; other functions are LEVIN_INVALID_ARGUMENT. */
levin_status levin_run_finish(levin_run* run);
/* Frees the run; ends it before if levin_run_finish was not called. Null is allowed, and does nothing. An error, which
 * frees nothing, in a child process of the one that has created the run, and in code of the run itself. */
levin_status levin_run_free(levin_run* run);

/* The next three functions take a batch: count tensors, with names or without (names: null). The tensors stay the
 * caller's, and nothing refers to them after the call.
 *
 * Trains on a batch, by the model's training_step. With accumulate_grad_batches, each n-th call updates the weights.
 * loss: null, or set to the loss divided by the number of batches of its update; nan if there was none. */
levin_status levin_run_step(levin_run* run, levin_tensor* const* tensors, const char* const* names, int32_t count,
                            double* loss);
/* Runs the model's validation_step on a batch; levin_run_metric returns what it logs. */
levin_status levin_run_evaluate(levin_run* run, levin_tensor* const* tensors, const char* const* names, int32_t count);
/* Returns what the model's predict_step returns for a batch. */
levin_status levin_run_predict(levin_run* run, levin_tensor* const* tensors, const char* const* names, int32_t count,
                               levin_tensor** out);
/* Ends an epoch: updates the weights with the batches that are left, and moves the schedulers that count epochs. */
levin_status levin_run_end_epoch(levin_run* run);

/* Sets *value to the latest value of this name: of levin_run_log, levin_run_evaluate, or the last training step. */
levin_status levin_run_metric(levin_run* run, const char* name, double* value);
/* Writes a value to the run's loggers. */
levin_status levin_run_log(levin_run* run, const char* name, double value);
/* Sets *value to the number of optimizer steps. */
levin_status levin_run_global_step(levin_run* run, int64_t* value);
/* Sets *value to the number of epochs that have ended. */
levin_status levin_run_current_epoch(levin_run* run, int64_t* value);
/* Calls a hook without arguments of all callbacks: "on_train_epoch_end". */
levin_status levin_run_call(levin_run* run, const char* hook);
/* Sets *value to 1 if a callback has requested a stop, on any rank, and otherwise to 0. */
levin_status levin_run_should_stop(levin_run* run, int32_t* value);

/* Sets *count to the number of weights: parameters, then buffers. */
levin_status levin_run_weight_count(levin_run* run, int32_t* count);
/* Sets *name to the name of a weight; valid until the run is freed. */
levin_status levin_run_weight_name(levin_run* run, int32_t index, const char** name);
/* Returns a copy of a weight, on the CPU. */
levin_status levin_run_get_weight(levin_run* run, const char* name, levin_tensor** out);
/* Copies a tensor of the same shape into a weight. */
levin_status levin_run_set_weight(levin_run* run, const char* name, const levin_tensor* value);

/* Writes everything that is needed to continue bitwise identically. */
levin_status levin_run_save(levin_run* run, const char* path);
/* Restores everything that levin_run_save has written, in a run of the same run file, at any time between two calls. */
levin_status levin_run_load(levin_run* run, const char* path);

#ifdef __cplusplus
}
#endif

#endif /* LEVIN_C_LEVIN_H */
