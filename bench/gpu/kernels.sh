#!/bin/sh
# Builds, checks and times the GPU kernels by themselves, on a machine with nvcc and a GPU:
#   bench/gpu/kernels.sh [build DIR | run DIR]      (both, in a temporary folder, without arguments)
# Prints relative errors that fail, then bandwidth and TFLOP/s with the fraction of the ceilings of this card.
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${2:-$(mktemp -d)}
arch=${INFERX_GPU_ARCH:-90a}

if [ "$1" != run ]; then
  flags="-std=c++20 --extended-lambda -O3 -cudart static -gencode=arch=compute_$arch,code=sm_$arch -I$root/csrc"
  mkdir -p "$dir"
  nvcc $flags "$root"/bench/gpu/linear.cu "$root"/csrc/cuda/linear/linear_bf16.cu "$root"/csrc/cuda/linear/wstream_bf16.cu "$root"/csrc/cuda/linear/ring_bf16.cu \
    "$root"/csrc/cuda/linear/tiled_bf16.cu "$root"/csrc/cuda/linear/cublaslt.cu -o "$dir/linear"
  nvcc $flags "$root"/bench/gpu/attention.cu "$root"/csrc/cuda/attention/decode_bf16.cu -o "$dir/attention"
fi
if [ "$1" != build ]; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
  for program in linear attention; do
    for tool in memcheck racecheck; do
      if command -v compute-sanitizer > /dev/null; then timeout 60 compute-sanitizer --tool $tool "$dir/$program" small 2>&1 | tail -n 4; fi
    done
    "$dir/$program"
  done
fi
