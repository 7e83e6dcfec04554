"""Trains as train.c does, with NumPy arrays through ctypes, and prints the weights.

  train.py LIBRARY RUN_FILE
"""
import ctypes
import sys

import numpy as np

SAMPLES, FEATURES, BATCHES, EPOCHS = 8, 4, 5, 2
FLOAT32 = 1


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("dtype", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32)]


levin = ctypes.CDLL(sys.argv[1])
levin.levin_last_error.restype = ctypes.c_char_p
levin.levin_live_handles.restype = ctypes.c_int64


def call(name, *arguments):
    if getattr(levin, name)(*arguments) != 0:
        sys.exit(levin.levin_last_error().decode())


def tensor(array):
    """A handle that refers to the array's memory."""
    handle = ctypes.c_void_p()
    sizes = ctypes.c_int64 * array.ndim
    call("levin_tensor_from_data", array.ctypes.data_as(ctypes.c_void_p), FLOAT32, array.ndim, sizes(*array.shape),
         sizes(*(stride // array.itemsize for stride in array.strides)), ctypes.byref(handle))
    return handle


def batch_arrays(batch):
    number = batch * SAMPLES + np.arange(SAMPLES)[:, None]
    x = ((7 * number + 3 * np.arange(FEATURES)) % 16).astype(np.float32) / 8 - 1
    y = ((5 * number) % 8).astype(np.float32) / 8
    return np.hstack([x, x])[:, :FEATURES], y  # rows with a gap between them


call("levin_init", 1)
run = ctypes.c_void_p()
call("levin_run_create", sys.argv[2].encode(), None, 0, ctypes.byref(run))
for epoch in range(EPOCHS):
    for batch in range(BATCHES):
        arrays = batch_arrays(batch)
        handles = (ctypes.c_void_p * 2)(*(tensor(array).value for array in arrays))
        call("levin_run_step", run, handles, None, 2, None)
        for handle in handles:
            call("levin_tensor_free", ctypes.c_void_p(handle))
    call("levin_run_end_epoch", run)

count = ctypes.c_int32()
call("levin_run_weight_count", run, ctypes.byref(count))
for index in range(count.value):
    name, weight, view = ctypes.c_char_p(), ctypes.c_void_p(), View()
    call("levin_run_weight_name", run, index, ctypes.byref(name))
    call("levin_run_get_weight", run, name, ctypes.byref(weight))
    call("levin_tensor_view", weight, ctypes.byref(view))
    shape = tuple(view.shape[k] for k in range(view.ndim))
    values = np.ctypeslib.as_array(ctypes.cast(view.data, ctypes.POINTER(ctypes.c_float)), shape)
    print(name.value.decode(), *(f"{bits:08X}" for bits in values.view(np.uint32).flatten()))
    call("levin_tensor_free", weight)
call("levin_run_finish", run)
call("levin_run_free", run)
if levin.levin_live_handles() != 0:
    sys.exit("handles are left")
