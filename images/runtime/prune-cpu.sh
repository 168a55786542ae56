#!/bin/sh
# prune-cpu.sh SITE_PACKAGES: for TORCH=cpu, remove what a run on CPUs never maps: CUDA libraries that are
# loaded on demand, headers, static libraries.
set -eu
cd "$1"
for name in engines_precompiled engines_runtime_compiled adv heuristic ops graph cnn; do
  rm -f "nvidia/cudnn/lib/libcudnn_$name.so.9"
done
rm -f nvidia/cu13/lib/libnvrtc.alt.so.13 nvidia/cu13/lib/libnvrtc-builtins.alt.so.* \
  nvidia/cu13/lib/libnvperf_host.so nvidia/cu13/lib/libnvperf_target.so \
  nvidia/nvshmem/lib/libnvshmem_device.bc torch/lib/libtorch_cuda_linalg.so
rm -rf nvidia/*/lib/*.a nvidia/*/include torch/bin/protoc*
