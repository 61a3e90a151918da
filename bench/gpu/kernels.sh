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
  products="$root/csrc/cuda/linear/*_bf16.cu $root/csrc/cuda/linear/cublaslt.cu"
  nodes="$root/csrc/cuda/norm/norm.cu $root/csrc/cuda/act/act.cu $root/csrc/cuda/kv/qk_norm_rope_kv_write.cu"
  nvcc $flags "$root"/bench/gpu/linear.cu $products -o "$dir/linear"
  nvcc $flags "$root"/bench/gpu/gemm.cu $products -o "$dir/gemm"
  nvcc $flags "$root"/bench/gpu/order.cu $products "$root"/csrc/cuda/linear/linear.cu "$root"/csrc/cuda/norm/norm.cu "$root"/csrc/cuda/primitive/reduce.cu "$root"/csrc/cuda/attention/*.cu -o "$dir/order"
  nvcc $flags "$root"/bench/gpu/nodes.cu $nodes "$root"/csrc/cuda/elementwise/elementwise.cu "$root"/csrc/cuda/primitive/reduce.cu -o "$dir/nodes"
  nvcc $flags "$root"/bench/gpu/chain.cu $nodes $products "$root"/csrc/cuda/attention/*.cu -o "$dir/chain"
  nvcc $flags "$root"/bench/gpu/attention.cu "$root"/csrc/cuda/attention/decode_bf16.cu -o "$dir/attention"
  nvcc $flags "$root"/bench/gpu/sample.cu "$root"/csrc/cuda/sample/sample.cu -o "$dir/sample"
  nvcc $flags "$root"/bench/gpu/prompt_attention.cu "$root"/csrc/cuda/attention/*.cu -o "$dir/prompt_attention"
  nvcc $flags "$root"/bench/gpu/moe.cu "$root"/csrc/cuda/moe/*.cu $products -o "$dir/moe"
fi
if [ "$1" != build ]; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
  for program in linear gemm nodes attention prompt_attention moe sample; do
    for tool in memcheck racecheck; do
      if command -v compute-sanitizer > /dev/null; then timeout 60 compute-sanitizer --tool $tool "$dir/$program" small 2>&1 | tail -n 4; fi
    done
    "$dir/$program"
  done
  "$dir/order"
  "$dir/chain"
fi
