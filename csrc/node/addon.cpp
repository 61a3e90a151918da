// The addon's entry: runs once per environment (main thread, each worker, each context that loads it).
#include <napi.h>

#include "node/classes.h"
#include "node/tokenizer_class.h"

static Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports["version"] = INFERX_VERSION;
  ix::node::register_device(env, exports);
  ix::node::register_weights(env, exports);
  ix::node::register_executor(env, exports);
  ix::node::register_tokenizer(env, exports);
  return exports;
}

NODE_API_MODULE(inferx, init)
