{
  # CMakeLists.txt is the build. This file only lets node-gyp (which node-gyp-build and prebuildify call) start it.
  "targets": [{
    "target_name": "inferx",
    "type": "none",
    "actions": [{
      "action_name": "cmake",
      "message": "building the inferx addon with CMake",
      "inputs": ["CMakeLists.txt"],
      "outputs": ["<(PRODUCT_DIR)/inferx.node"],
      "action": ["node", "scripts/build-native.cjs", "<(CONFIGURATION_NAME)"]
    }]
  }]
}
