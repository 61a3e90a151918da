// platform.h on Linux.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/platform.h"

namespace ix::platform {

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

int64_t own_cpu_clock() {
  clockid_t clock;
  return pthread_getcpuclockid(pthread_self(), &clock) == 0 ? clock : 0;
}

int64_t cpu_ns(int64_t clock) {
  timespec t;
  if (clock == 0 || clock_gettime(clockid_t(clock), &t) != 0) return 0;
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void wait_on(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void wake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count < 0 ? INT_MAX : count, nullptr,
          nullptr, 0);
}

static size_t whole_pages(size_t bytes) {  // ARM has pages of 4, 16 or 64 KiB
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) & ~(page - 1);
}

// Weights stream through 4 KiB pages at the cost of TLB misses and of prefetchers that stop at every page.
void* alloc_pages(size_t bytes) {
  constexpr size_t kLarge = size_t(2) << 20;
  if (bytes < kLarge) {
    void* p = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
  }
  if (bytes > SIZE_MAX / 2) return nullptr;
  // over-allocate by one large page, then trim, so that the start is aligned and huge pages can back all of it
  char* p = static_cast<char*>(
      mmap(nullptr, bytes + kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (p == MAP_FAILED) return nullptr;
  const size_t head = (kLarge - (reinterpret_cast<uintptr_t>(p) & (kLarge - 1))) & (kLarge - 1);
  const size_t kept = whole_pages(bytes), mapped = whole_pages(bytes + kLarge);
  if (head) munmap(p, head);
  if (mapped > head + kept) munmap(p + head + kept, mapped - head - kept);
  madvise(p + head, kept, MADV_HUGEPAGE);
  return p + head;
}
void free_pages(void* memory, size_t bytes) {
  if (memory) munmap(memory, std::max<size_t>(whole_pages(bytes), 1));
}

static std::string first_line(const std::string& path) {
  std::ifstream f(path);
  std::string s;
  std::getline(f, s);
  return s;
}

// The tightest limit along this process's own control groups.
static double cgroup_cores() {
  double cores = 1e9;
  std::ifstream f("/proc/self/cgroup");
  std::string line;
  while (std::getline(f, line)) {
    const size_t last = line.rfind(':');
    if (last == std::string::npos) continue;
    const bool v2 = line.rfind("0::", 0) == 0;
    if (!v2 && line.find("cpu") == std::string::npos) continue;
    std::string group = line.substr(last + 1);
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (;;) {  // limits of the ancestors count too
      if (v2) {
        std::istringstream s(first_line(root + group + "/cpu.max"));
        std::string quota;
        double period = 0;
        if (s >> quota >> period && quota != "max" && period > 0) cores = std::min(cores, atof(quota.c_str()) / period);
      } else {
        const double quota = atof(first_line(root + group + "/cpu.cfs_quota_us").c_str());
        const double period = atof(first_line(root + group + "/cpu.cfs_period_us").c_str());
        if (quota > 0 && period > 0) cores = std::min(cores, quota / period);
      }
      if (group.empty() || group == "/") break;
      group = group.substr(0, group.rfind('/'));
    }
  }
  return cores;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<std::string> physical;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; i++) {
      if (!CPU_ISSET(i, &set)) continue;
      const std::string siblings =
          first_line("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list");
      physical.insert(siblings.empty() ? "cpu" + std::to_string(i) : siblings);
    }
  }
  const int cores = physical.empty() ? 1 : int(physical.size());
  return std::max(1, std::min(cores, int(std::min(cgroup_cores(), 4096.0))));
}

static uint64_t meminfo(const char* key) {
  std::ifstream f("/proc/meminfo");
  std::string line;
  while (std::getline(f, line))
    if (line.rfind(key, 0) == 0) return strtoull(line.c_str() + strlen(key), nullptr, 10) * 1024;
  return 0;
}
static uint64_t cgroup_bytes(const char* v2, const char* v1) {
  std::string s = first_line(std::string("/sys/fs/cgroup/") + v2);
  if (s.empty()) s = first_line(std::string("/sys/fs/cgroup/memory/") + v1);
  return s.empty() || s == "max" ? UINT64_MAX : strtoull(s.c_str(), nullptr, 10);
}
uint64_t total_memory() { return std::min(meminfo("MemTotal:"), cgroup_bytes("memory.max", "memory.limit_in_bytes")); }
uint64_t free_memory() {
  const uint64_t available = meminfo("MemAvailable:");
  const uint64_t limit = cgroup_bytes("memory.max", "memory.limit_in_bytes");
  const uint64_t used = cgroup_bytes("memory.current", "memory.usage_in_bytes");
  if (limit == UINT64_MAX || used == UINT64_MAX) return available;
  return std::min(available, limit > used ? limit - used : 0);
}

std::string cpu_name() {
  std::ifstream f("/proc/cpuinfo");
  std::string line;
  while (std::getline(f, line))
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "CPU";
}

#if defined(__aarch64__)
bool has_arm_dot_products() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
#endif

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}
void File::open(const std::string& path) {
  path_ = path;
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0)
    fail(errno == ENOENT ? "IX_FILE_NOT_FOUND" : "IX_FILE_READ", "cannot open %s: %s", path.c_str(), strerror(errno));
  struct stat st;
  if (fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) fail("IX_FILE_READ", "%s is not a regular file", path.c_str());
  size_ = uint64_t(st.st_size);
  mtime_ns_ = int64_t(st.st_mtim.tv_sec) * 1000000000 + st.st_mtim.tv_nsec;
}
void File::read(void* destination, uint64_t offset, size_t bytes) const {
  char* out = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t n = pread(fd_, out, std::min<size_t>(bytes, size_t(1) << 30), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail("IX_FILE_READ", "cannot read %s at offset %llu: %s", path_.c_str(), (unsigned long long)offset,
           strerror(errno));
    if (n == 0)
      fail("IX_FILE_CHANGED", "%s ends at offset %llu, earlier than when it was opened", path_.c_str(),
           (unsigned long long)offset);
    out += n;
    offset += uint64_t(n);
    bytes -= size_t(n);
  }
}

void* load_symbol(const std::string& library, const char* symbol, std::string* why) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* address = handle ? dlsym(handle, symbol) : nullptr;
  if (!address) {
    const char* text = dlerror();
    *why = text ? text : "unknown reason";
  }
  return address;
}

std::string own_directory() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&own_directory), &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace ix::platform
