#!/bin/sh
# Starts the program of this name in libexec/ with the LibTorch that it needs, which a bundle does not contain: the one
# in LEVIN_TORCH_DIR (a folder with lib/libtorch_cpu.so, or a folder with torch/lib such as site-packages), or the PyTorch
# of LEVIN_PYTHON or python3. LEVIN_LAUNCH_WITH: a command to run it with, such as "gdb --args" or "nsys profile".
set -eu

name=${0##*/}
root=$(readlink -f "$0")
root=${root%/bin/*}
read -r wanted <"$root/share/levin/torch_version"

die() {
  printf '%s: %s\n' "$name" "$*" >&2
  exit 3
}

# The folder that holds lib/libtorch_cpu.so, without importing PyTorch.
torch_of_python() {
  "${LEVIN_PYTHON:-python3}" -c 'import importlib.util as u
found = u.find_spec("torch")
print(found.submodule_search_locations[0] if found else "")' 2>/dev/null || true
}

if [ -n "${LEVIN_TORCH_DIR:-}" ]; then
  torch=$LEVIN_TORCH_DIR
  if [ -e "$torch/torch/lib/libtorch_cpu.so" ]; then torch=$torch/torch; fi
  [ -e "$torch/lib/libtorch_cpu.so" ] || die "LEVIN_TORCH_DIR=$LEVIN_TORCH_DIR holds no lib/libtorch_cpu.so and no" \
    "torch/lib/libtorch_cpu.so. Set it to the folder of LibTorch $wanted, or to site-packages of an environment with" \
    "torch."
else
  torch=$(torch_of_python)
  [ -e "$torch/lib/libtorch_cpu.so" ] || die "no LibTorch: ${LEVIN_PYTHON:-python3} has no torch. Install it" \
    "(pip install torch==$wanted.*), activate its environment, or set LEVIN_PYTHON or LEVIN_TORCH_DIR."
fi

# "2.11" of a wheel's version.py or of an unpacked LibTorch's build-version; "" if it has neither.
version_of_torch() {
  if [ -r "$torch/version.py" ]; then
    while read -r line; do
      case $line in "__version__ = "*) line=${line#*\'} && printf '%s' "$line" ;; esac
    done <"$torch/version.py"
  elif [ -r "$torch/build-version" ]; then
    read -r line <"$torch/build-version" && printf '%s' "$line"
  fi
}

# Levin uses parts of LibTorch without a stable ABI.
version=$(version_of_torch)
case $version in
  '' | "$wanted".*) ;;
  *) die "LibTorch in $torch is ${version%%\'*}, and this Levin was built for $wanted. Install torch==$wanted.*, or" \
    "set LEVIN_TORCH_DIR." ;;
esac

libraries=$torch/lib
for folder in "$torch"/../nvidia/*/lib; do
  if [ -d "$folder" ]; then libraries=$libraries:$folder; fi
done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# Data sets that came with the bundle.
if [ -d "$root/share/levin/datasets" ]; then
  export LEVIN_HOME="${LEVIN_HOME:-$root/share/levin}"
fi
# shellcheck disable=SC2086  # words on purpose
exec ${LEVIN_LAUNCH_WITH:-} "$root/libexec/$name" "$@"
