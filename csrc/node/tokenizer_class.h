// The JavaScript classes Tokenizer and TextStream (types/native-text.d.ts) over csrc/text.
#pragma once
#include <napi.h>

namespace ix::node {

void register_tokenizer(Napi::Env env, Napi::Object exports);

}  // namespace ix::node
