// Everything that differs between operating systems: clocks, waiting, memory, files, libraries, cores.
// The only file of the native side (with platform_*.cpp) that includes system headers for these.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ix::platform {

int64_t now_ns();  // monotonic
// A name of the calling thread's clock of processor time, for cpu_ns of any thread; both 0 where there is none.
int64_t own_cpu_clock();
int64_t cpu_ns(int64_t clock);
inline void pause() {  // inside a spin loop
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // a yield does nothing on most cores
#endif
}

// Blocks while *word == expected, until woken (may return early).
void wait_on(std::atomic<uint32_t>* word, uint32_t expected);
void wake(std::atomic<uint32_t>* word, int count);  // count < 0: all

// Zeroed pages that are only backed once touched; large pages where the system gives them. nullptr when out of memory.
void* alloc_pages(size_t bytes);
void free_pages(void* memory, size_t bytes);

// Physical cores this process may use: CPU affinity, SMT siblings and container quotas (cgroup v1 and v2) counted in.
int usable_cores();
uint64_t total_memory();
uint64_t free_memory();  // what can be taken without swapping, container limits counted in
std::string cpu_name();
#if defined(__aarch64__)
bool has_arm_dot_products();  // SDOT
#endif

// A read-only file that knows what it was when it was opened.
class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();
  void open(const std::string& path);  // throws IX_FILE_NOT_FOUND, IX_FILE_READ
  void read(void* destination, uint64_t offset,
            size_t bytes) const;  // all bytes, or throws IX_FILE_READ / IX_FILE_CHANGED
  uint64_t size() const { return size_; }
  int64_t mtime_ns() const { return mtime_ns_; }
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t mtime_ns_ = 0;
  std::string path_;
};

// Opens a shared library and returns the address of one symbol; nullptr and a reason when that fails. Never closes it.
void* load_symbol(const std::string& library, const char* symbol, std::string* why);
std::string own_directory();  // of the addon

}  // namespace ix::platform
