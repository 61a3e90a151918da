// The border of errors: ix::Error -> JavaScript Error with the code in `.code`.
#pragma once
#include <napi.h>

#include "core/error.h"

namespace ix {

inline Napi::Error to_js(Napi::Env env, const Error& error) {
  Napi::Error out = Napi::Error::New(env, error.what());
  out.Value().Set("code", Napi::String::New(env, error.code()));
  return out;
}

// Runs a native call; ix::Error and std::bad_alloc leave it as JavaScript errors.
template <class Call>
auto guarded(Napi::Env env, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw to_js(env, error);
  } catch (const std::bad_alloc&) {
    throw to_js(env, Error("IX_OUT_OF_MEMORY", "not enough memory"));
  }
}

}  // namespace ix
