"use strict";
// Builds the addon into build/Release. Called at install, by `npm run build:native` and by binding.gyp (prebuildify).
// cmake-js where it is installed (development, Windows), plain cmake otherwise. The build itself is CMakeLists.txt.
//
//   node scripts/build-native.cjs [Release|Debug]
//   node scripts/build-native.cjs --if-missing   at install: nothing to do where a prebuild or an earlier build loads
//   INFERX_CMAKE_ARGS="-DINFERX_CUDA=ON"   more arguments for cmake; the CUDA library is left out unless asked for
const { spawnSync } = require("node:child_process");
const os = require("node:os");
const path = require("node:path");

const root = path.join(__dirname, "..");
const ifMissing = process.argv.includes("--if-missing");
const config = process.argv.slice(2).find((word) => !word.startsWith("--")) || "Release";
const extra = (process.env.INFERX_CMAKE_ARGS || "").split(/\s+/).filter(Boolean);
if (!extra.some((arg) => arg.startsWith("-DINFERX_CUDA="))) extra.unshift("-DINFERX_CUDA=OFF");

function fail(...lines) {
  console.error(["", "inferx: the addon could not be built.", ...lines, ""].join("\n"));
  process.exit(1);
}

if (ifMissing) {
  try {
    require("node-gyp-build")(root);
    process.exit(0);
  } catch {
    console.log("inferx: no addon for this machine yet; building it, once");
  }
}

const found = (command) => !spawnSync(command, ["--version"], { stdio: "ignore" }).error;
const needs = "A build from source needs cmake 3.25 or newer, make or ninja, and a C++20 compiler (g++ 12, clang 15).";
const debian = "On Debian 12 or Ubuntu 24.04: apt-get install -y cmake g++ make";
if (!found("cmake")) fail("cmake was not found.", needs, debian);
if (process.platform !== "win32" && ![process.env.CXX, "c++", "g++", "clang++"].some((name) => name && found(name))) {
  fail("No C++ compiler was found.", needs, debian);
}

function run(command, args) {
  const result = spawnSync(command, args, { cwd: root, stdio: "inherit" });
  if (result.error) fail(`${command} could not be run: ${result.error.message}`, needs);
  if (result.status !== 0) {
    fail(
      `${path.basename(command)} failed (${result.signal || `exit code ${result.status}`}); the reason stands above.`,
      needs,
    );
  }
}

let cmakeJs;
try {
  cmakeJs = require.resolve("cmake-js/bin/cmake-js", { paths: [root] });
} catch {
  // Not installed: a user's source build.
}
if (cmakeJs) {
  const options = extra.map((arg) => arg.replace(/^-D/, "--CD"));
  run(process.execPath, [cmakeJs, "build", "-O", "build/cmake", "-B", config, ...options]);
} else {
  run("cmake", ["-S", ".", "-B", "build/cmake", `-DCMAKE_BUILD_TYPE=${config}`, ...extra]);
  run("cmake", ["--build", "build/cmake", "--config", config, "--parallel", String(os.availableParallelism())]);
}
