// cuBLASLt, opened at run time from wherever the loader finds it: the products of many tokens. Its interface is
// declared here, as far as it is used; choices of algorithm are cached per shape. Sums are f32, the bias is added by
// its epilogue.
#include <dlfcn.h>
#include <library_types.h>

#include <map>
#include <mutex>
#include <tuple>

#include "cuda/linear/bf16.h"
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;

// ---- from cuBLASLt's documented interface: the same numbers in releases 12 and 13
using Handle = void*;
using Description = void*;
using Layout = void*;
using Preference = void*;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
enum {
  kCompute32F = 68,
  kTransposeA = 3,
  kEpilogue = 7,
  kBiasPointer = 8,
  kEpilogueDefault = 1,
  kEpilogueBias = 4,
  kMaxWorkspace = 1,
  kReductionMask = 3,
  kAlignmentC = 7,
  kAlignmentD = 8
};

struct Library {
  int (*create)(Handle*);
  int (*matmul)(Handle, Description, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t workspace_bytes,
                cudaStream_t);
  int (*heuristic)(Handle, Description, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, Heuristic*,
                   int* found);
  int (*description_create)(Description*, int compute, int scale_type);
  int (*description_set)(Description, int attribute, const void*, size_t);
  int (*description_destroy)(Description);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*layout_destroy)(Layout);
  int (*preference_create)(Preference*);
  int (*preference_set)(Preference, int attribute, const void*, size_t);
  int (*preference_destroy)(Preference);
};

template <class F>
bool find(void* library, const char* name, F** function) {
  return (*function = reinterpret_cast<F*>(dlsym(library, name))) != nullptr;
}

const Library* open_library() {
  static Library l;
  static const bool good = [] {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library && find(library, "cublasLtCreate", &l.create) && find(library, "cublasLtMatmul", &l.matmul) &&
          find(library, "cublasLtMatmulAlgoGetHeuristic", &l.heuristic) &&
          find(library, "cublasLtMatmulDescCreate", &l.description_create) &&
          find(library, "cublasLtMatmulDescSetAttribute", &l.description_set) &&
          find(library, "cublasLtMatmulDescDestroy", &l.description_destroy) &&
          find(library, "cublasLtMatrixLayoutCreate", &l.layout_create) &&
          find(library, "cublasLtMatrixLayoutDestroy", &l.layout_destroy) &&
          find(library, "cublasLtMatmulPreferenceCreate", &l.preference_create) &&
          find(library, "cublasLtMatmulPreferenceSetAttribute", &l.preference_set) &&
          find(library, "cublasLtMatmulPreferenceDestroy", &l.preference_destroy))
        return true;
    }
    return false;
  }();
  return good ? &l : nullptr;
}

// What one product needs; handed back when it goes.
struct Call {
  const Library& l;
  Description description = nullptr;
  Layout w = nullptr, x = nullptr, y = nullptr;
  bool good = false;

  // Column by column, as cuBLASLt counts: y[n, T] = w[k, n]^T x[k, T]
  Call(const Library& library, const Bf16Product& p, const void* bias) : l(library) {
    const int type = p.halves ? CUDA_R_16F : CUDA_R_16BF;
    const int transpose = 1, epilogue = bias ? kEpilogueBias : kEpilogueDefault;
    good = l.description_create(&description, kCompute32F, CUDA_R_32F) == 0 &&
           l.description_set(description, kTransposeA, &transpose, sizeof transpose) == 0 &&
           l.description_set(description, kEpilogue, &epilogue, sizeof epilogue) == 0 &&
           (!bias || l.description_set(description, kBiasPointer, &bias, sizeof bias) == 0) &&
           l.layout_create(&w, type, p.k, p.n, p.w_stride) == 0 &&
           l.layout_create(&x, type, p.k, p.tokens, p.x_stride) == 0 &&
           l.layout_create(&y, p.narrow ? CUDA_R_16BF : CUDA_R_32F, p.n, p.tokens, p.y_stride) == 0;
  }
  ~Call() {
    if (description) l.description_destroy(description);
    for (Layout layout : {w, x, y})
      if (layout) l.layout_destroy(layout);
  }
  Call(const Call&) = delete;
};

bool choose(const Library& l, Handle handle, const Call& call, uint32_t y_alignment, Heuristic* choice) {
  Preference preference;
  if (l.preference_create(&preference) != 0) return false;
  int found = 0;
  constexpr uint32_t kInF32 = 2;  // parts of K are added up before the sum is rounded
  const bool good =
      l.preference_set(preference, kMaxWorkspace, &kCublasWorkspace, sizeof kCublasWorkspace) == 0 &&
      l.preference_set(preference, kReductionMask, &kInF32, sizeof kInF32) == 0 &&
      l.preference_set(preference, kAlignmentC, &y_alignment, sizeof y_alignment) == 0 &&
      l.preference_set(preference, kAlignmentD, &y_alignment, sizeof y_alignment) == 0 &&
      l.heuristic(handle, call.description, call.w, call.x, call.y, call.y, preference, 1, choice, &found) == 0 &&
      found > 0;
  l.preference_destroy(preference);
  return good;
}
}  // namespace

namespace ix::cuda {

bool cublaslt_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& p, void* workspace) {
  static std::mutex mutex;
  static Handle handles[kMaxDevices];
  static int generations[kMaxDevices];
  static std::map<std::tuple<int, int, int, int, bool, bool, bool, uint32_t>, Heuristic>
      choices;  // status -1: there is none
  const Library* l = open_library();
  if (!l) return false;
  // the bias has the type of the results
  const Rows<float> bias({const_cast<float*>(p.bias), 2, {1, p.n}, p.n});
  __nv_bfloat16* narrow_bias = reinterpret_cast<__nv_bfloat16*>(static_cast<char*>(workspace) + kCublasWorkspace);
  const bool rounds = p.bias && p.narrow;
  const Call call(*l, p, rounds ? static_cast<const void*>(narrow_bias) : p.bias);
  if (!call.good) return false;
  const uint32_t alignment =
      1u << __builtin_ctzll(reinterpret_cast<uintptr_t>(p.y) | uint64_t(p.y_stride) * (p.narrow ? 2 : 4) | 256);
  Heuristic choice;
  {
    const std::lock_guard lock(mutex);
    Handle& handle = handles[gpu.index];
    const int generation = context_generation[gpu.index];
    if (generations[gpu.index] != generation) handle = nullptr;  // it went with its context
    generations[gpu.index] = generation;
    if (!handle && l->create(&handle) != 0) return handle = nullptr, false;
    // an algorithm may serve other numbers of tokens, but not every number: one choice per shape
    const auto [found, is_new] =
        choices.try_emplace({gpu.index, p.tokens, p.n, p.k, p.bias != nullptr, p.narrow, p.halves, alignment});
    if (is_new && !choose(*l, handle, call, alignment, &found->second)) found->second.status = -1;
    choice = found->second;
  }
  if (rounds && choice.status == 0)
    for_vectors(stream, 1, p.n, Width<1>{1}, [=] __device__(auto at) { store(narrow_bias + at.column, at.of(bias)); });
  const float one = 1, zero = 0;
  return choice.status == 0 &&
         l->matmul(handles[gpu.index], call.description, &one, p.w, call.w, p.x, call.x, &zero, p.y, call.y, p.y,
                   call.y, &choice.algorithm, workspace, kCublasWorkspace, stream->handle) == 0;
}

}  // namespace ix::cuda
