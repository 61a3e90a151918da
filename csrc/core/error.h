// The error type of the native side: a stable code of lib/base/errors.ts and a message. Thrown inside core and text,
// turned into a JavaScript error at the N-API border; kernels never throw.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace ix {

class Error : public std::runtime_error {
 public:
  Error(const char* code, const std::string& message) : std::runtime_error(message), code_(code) {}
  const char* code() const { return code_; }  // a string literal

 private:
  const char* code_;
};

// printf-style throw.
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(const char* code, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  throw Error(code, text);
}

}  // namespace ix
