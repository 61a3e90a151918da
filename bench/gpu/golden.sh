#!/bin/bash
# All correctness tests on the GPU, in the repository's root: kernel cases, golden fixtures, checked mode, answers of crowds and ten thousand
# random steps (INFERX_RANDOM_STEPS, INFERX_RANDOM_SEED): bench/gpu/golden.sh [regular expression of test names]
# Then the same under compute-sanitizer for the tests that SANITIZE names (memcheck; "" skips it). Node is the one in carry/gpu or PATH's.
set -u
node=node
if [ -f carry/gpu/node.xz ]; then
  node=/tmp/inferx-node
  [ -x $node ] || { xz -dc carry/gpu/node.xz > $node && chmod +x $node; }
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
export INFERX_TEST_DEVICE=cuda
time timeout "${LIMIT:-400}" $node carry/gpu/tests.mjs "${1:-}"
status=$?
if [ -n "${SANITIZE-attention|sample|linear}" ]; then
  timeout "${LIMIT:-200}" compute-sanitizer --tool "${TOOL:-memcheck}" --leak-check no --error-exitcode 3 $node carry/gpu/tests.mjs "${SANITIZE-attention|sample|linear}" || status=$?
fi
exit $status
