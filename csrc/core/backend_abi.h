/* The contract between inferx's core and a backend (a library of kernels for one kind of device).
 * Plain C: the CUDA backend is a separate shared library, opened at run time through one exported symbol,
 * inferx_backend_entry. The CPU backend is linked in and goes through the same table. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define IX_BACKEND_ABI 2u
#define IX_MAX_RANK 4
#define IX_ERROR_TEXT 512

#ifdef __cplusplus
extern "C" {
#endif

/* Symbolic leading dimensions of a plan, resolved at each step. */
enum {
  IX_DIM_T = 0,
  /* tokens in the step */ IX_DIM_R = 1,
  /* sequences in the step */ IX_DIM_S = 2,
  /* rows that get logits */ IX_NUM_DIMS = 3
};

typedef struct ix_error {
  const char* code; /* a literal of lib/base/errors.ts, or NULL: no error */
  char text[IX_ERROR_TEXT];
} ix_error;

/* One operand of a running kernel. The element type (or packed layout) is fixed by the kernel's signature. */
typedef struct ix_tensor {
  void* data; /* device address; NULL for an omitted optional operand */
  int32_t rank;
  int32_t dims[IX_MAX_RANK]; /* a symbolic leading dimension holds this step's value */
  int64_t stride;            /* elements from one row (of dims[0]) to the next; activations are padded to 32 elements.
                                Of a KV cache: bytes from one block to the next */
} ix_tensor;

typedef union ix_attr {
  int64_t i;
  double f;
} ix_attr;

typedef struct ix_kernel_call {
  const ix_tensor* operands; /* inputs, then outputs, in the signature's order */
  const ix_attr* attrs;      /* scalars, in the signature's order */
  void* workspace;           /* as many bytes as `workspace` asked for, 64-byte aligned; NULL if none */
} ix_kernel_call;

/* Where kernels run: the CPU's thread pool, a CUDA stream. Each backend defines its own. */
typedef struct ix_stream ix_stream;

typedef struct ix_kernel {
  const char* signature; /* "rms_norm(x: f32[T,D], w: f32[D], eps: f32) -> f32[T,D]"; grammar in docs/plan.md */
  const char* tags;      /* space separated "key=value": numerics=f32|bf16|int8; "" if none */
  const char* source;    /* file, for messages */
  void (*launch)(ix_stream*, const ix_kernel_call*);
  size_t (*workspace)(const ix_kernel_call*,
                      int num_threads); /* NULL: none. Asked once, with every dimension at its maximum and no data */
} ix_kernel;

/* A packed layout of a two-dimensional weight [rows, cols]. Packing runs on the host, panel by panel, in parallel. */
typedef struct ix_layout {
  const char* name;   /* "p32_q8_0" */
  const char* source; /* dtype of the rows that `pack` reads: "q8_0", "bf16", "f32", ... */
  int32_t panel_rows; /* rows in one panel; the last panel is padded */
  size_t (*panel_bytes)(int64_t cols);
  /* rows[i] = start of row i of the panel in the source dtype; num_rows <= panel_rows. NULL: a panel is its rows one
     after the other as they are stored, each padded with zeros to panel_bytes / panel_rows. */
  void (*pack)(void* panel, const void* const* rows, int32_t num_rows, int64_t cols);
} ix_layout;

typedef struct ix_device ix_device;
typedef struct ix_mark ix_mark;   /* a place in the order of what was launched */
typedef struct ix_graph ix_graph; /* captured launches */

typedef struct ix_device_options {
  int32_t num_threads; /* CPU: threads of the pool this device may use; 0 = default */
} ix_device_options;

typedef struct ix_device_info {
  char name[128];        /* "AMD EPYC 9B45", "NVIDIA H200" */
  char arch[32];         /* "avx512", "sm_90" */
  uint64_t memory_bytes; /* total; 0 = unknown */
  uint64_t free_bytes;
} ix_device_info;

/* The versioned table. All functions may be called from any thread; calls on one device are serialised by core, except
 * `upload` and `wait`, which may run beside every other call. */
typedef struct ix_backend {
  uint32_t abi;
  const char* name;                   /* "cpu", "cuda" */
  int32_t (*device_count)(ix_error*); /* < 0: unusable, the error says why and what repairs it */
  int32_t (*device_info)(int32_t index, ix_device_info*, ix_error*); /* 0 = ok, as below */
  ix_device* (*open)(int32_t index, const ix_device_options*, ix_error*);
  void (*close)(ix_device*);
  const ix_kernel* const* (*kernels)(ix_device*, uint32_t* count);
  const ix_layout* const* (*layouts)(ix_device*, uint32_t* count);
  int32_t (*num_threads)(ix_device*);
  void* (*alloc)(ix_device*, size_t bytes, ix_error*); /* zeroed */
  void (*free)(ix_device*, void*, size_t bytes);
  void* (*alloc_host)(ix_device*, size_t bytes,
                      ix_error*); /* host memory that `copy` reaches without waiting, zeroed */
  void (*free_host)(ix_device*, void*, size_t bytes);
  /* Sets `rows` pieces of row_bytes, `stride` bytes apart, to `byte`, in the order of launches. */
  int32_t (*fill)(ix_device*, void* dst, size_t stride, int byte, size_t row_bytes, size_t rows, ix_error*);
  /* From any host memory, from several threads at once; `src` is free when it returns, `dst` is written after
   * synchronize. */
  int32_t (*upload)(ix_device*, void* dst, const void* src, size_t bytes, ix_error*);
  /* `rows` pieces of row_bytes, the strides (in bytes) apart, after what was launched before and before what comes
     after. Either side is device memory or host memory of alloc_host, which must stay as it is until synchronize. */
  int32_t (*copy)(ix_device*, void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t row_bytes,
                  size_t rows, ix_error*);
  ix_stream* (*stream)(ix_device*);
  int32_t (*synchronize)(ix_device*, ix_error*); /* waits for all launched work and reports its errors */

  /* Of backends whose launches return before the work is done; NULL where a launch does it all. */
  ix_mark* (*make_mark)(ix_device*, ix_error*);
  void (*free_mark)(ix_device*, ix_mark*);
  int32_t (*record)(ix_device*, ix_mark*, ix_error*); /* the mark stands behind all that was launched so far */
  int32_t (*wait)(ix_device*, ix_mark*, ix_error*);   /* until the device has passed the mark */
  /* Launches between capture and end_capture are kept instead of run; replay runs them, with the operands they had.
     end_capture gives NULL, without an error, if they cannot be kept: they must be launched again then. */
  int32_t (*capture)(ix_device*, ix_error*);
  ix_graph* (*end_capture)(ix_device*, ix_error*);
  int32_t (*replay)(ix_device*, ix_graph*, ix_error*);
  void (*free_graph)(ix_device*, ix_graph*);
} ix_backend;

/* Returns NULL if the library does not speak this ABI version. */
typedef const ix_backend* (*ix_backend_entry_fn)(uint32_t abi);

#ifdef __cplusplus
}
#endif
