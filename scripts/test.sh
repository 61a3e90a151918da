#!/usr/bin/env bash
# Every check of the repository, in the order of how soon it speaks: `npm test`. Each is run even when one before it failed;
# the last line counts. Checks whose tool is missing say so loudly and count as skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 skipped=0 failures=()

# check NAME COMMAND...
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
    printf '=== %s: ok (%d s)\n' "$name" $((SECONDS - start))
  else
    failed=$((failed + 1)) failures+=("$name")
    printf '=== %s: FAILED (%d s)\n' "$name" $((SECONDS - start))
  fi
}

skip() {
  skipped=$((skipped + 1))
  printf '\n=== %s: SKIPPED, %s\n' "$1" "$2"
}

# vitest NAME FOLDER...: its tests are counted one by one.
vitest_run() {
  local report=build/vitest-$1.json status
  shift
  rm -f "$report"
  npx vitest run --reporter=default --reporter=json --outputFile="$report" "$@"
  status=$?
  [ -s "$report" ] || return 1
  passed=$((passed + $(node -p "require('./$report').numPassedTests"))) # the check itself counts, too
  failed=$((failed + $(node -p "require('./$report').numFailedTests")))
  return $status
}

native_tests() {
  # the tree that the install configured, with the tests added
  cmake -S . -B build/cmake -DINFERX_BUILD_TESTS=ON &&
    cmake --build build/cmake --parallel "$(nproc)" &&
    ctest --test-dir build/cmake --no-tests=error --output-on-failure
}

sanitized_tests() {
  cmake -S . -B build/sanitize -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINFERX_BUILD_TESTS=ON -DINFERX_BUILD_ADDON=OFF -DINFERX_CUDA=OFF \
    -DINFERX_SANITIZE=address,undefined &&
    cmake --build build/sanitize --parallel "$(nproc)" &&
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ctest --test-dir build/sanitize --no-tests=error --output-on-failure
}

# Small forms at -O1: kernels are compiled once per instruction set, and the emulator takes ten times as long as a processor.
arm_tests() {
  cmake -S . -B build/arm --toolchain cmake/aarch64-linux-gnu.cmake -DINFERX_BUILD_TESTS=ON -DINFERX_BUILD_ADDON=OFF -DINFERX_CUDA=OFF \
    -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DINFERX_KERNEL_OPTIMIZATION=-O1 &&
    cmake --build build/arm --parallel "$(nproc)" &&
    ctest --test-dir build/arm --no-tests=error --output-on-failure --parallel "$(nproc)" --exclude-regex '^attention_test' # minutes
}

examples() {
  local example status=0
  for example in examples/*.mjs; do
    echo "--- $example"
    timeout 120 node "$example" || { echo "$example ended with $?"; status=1; }
  done
  return $status
}

cpp_format() {
  git ls-files -co --exclude-standard 'csrc/*.h' 'csrc/*.cpp' 'csrc/*.cu' 'csrc/*.cuh' 'test/native/*.cpp' |
    xargs "$1" --dry-run --Werror
}

cuda_build() {
  cmake -S . -B build/cuda -DINFERX_BUILD_ADDON=OFF -DINFERX_CUDA=ON -DINFERX_CUDA_ARCHS=90a-real &&
    cmake --build build/cuda --target inferx_cuda --parallel "$(nproc)"
}

mkdir -p build
check "package build" npm run --silent build
check "native build and C++ tests, every instruction set" native_tests
check "types" npx tsc -p .
check "lint and format" npx biome check .
check "layers" node scripts/check-layers.mjs
formatter=$(command -v clang-format-19 || true)
if [ -n "$formatter" ]; then check "C++ format" cpp_format "$formatter"; else skip "C++ format" "clang-format-19 is not installed"; fi
check "public API is the committed one" node scripts/check-api.mjs
check "package contents" npx publint --strict
check "package types" npx attw --pack . --quiet
check "unit, conformance, golden and random tests" vitest_run main --exclude 'test/{cli,leak,states}/**'
check "command line, states, leaks, exit codes" vitest_run users --no-file-parallelism test/cli test/leak test/states
check "examples" examples
check "C++ tests with AddressSanitizer and UBSan" sanitized_tests
if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  skip "C++ tests on emulated ARM" "aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu) is not installed"
elif ! command -v qemu-aarch64 >/dev/null; then
  skip "C++ tests on emulated ARM" "qemu-aarch64 (Debian: qemu-user) is not installed"
else
  check "C++ tests on emulated ARM" arm_tests
fi
if [ -z "$(find csrc/cuda -name '*.cu' -print -quit 2>/dev/null)" ]; then
  skip "CUDA build" "csrc/cuda has no sources yet"
elif command -v nvcc >/dev/null; then
  check "CUDA build" cuda_build
else
  skip "CUDA build" "nvcc is not installed"
fi

printf '\n'
for name in "${failures[@]}"; do echo "FAILED: $name"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
