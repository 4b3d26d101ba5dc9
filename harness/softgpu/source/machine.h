// The machine of software GPUs in this process: how many there are, how much memory each has, and that memory itself.
#ifndef HARNESS_SOFTGPU_MACHINE_H_
#define HARNESS_SOFTGPU_MACHINE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace softgpu {

// Memory that nobody has written reads as bytes of all ones: NaN as a number of any float type, -1 as an integer.
constexpr int kGarbage = 0xff;

class Machine {
 public:
  static Machine& Get() {
    static Machine* machine = new Machine;
    return *machine;
  }

  // Called once, before TensorFlow asks how many devices there are.
  void Configure(int count, int64_t bytes_each) {
    bytes_each_ = bytes_each;
    used_ = std::vector<std::atomic<int64_t>>(count);
  }

  int count() const { return static_cast<int>(used_.size()); }
  int64_t bytes_each() const { return bytes_each_; }
  int64_t used(int device) const { return used_[device]; }

  // Null where the device has no such memory left. Aligned to a page.
  void* Allocate(int device, uint64_t size) {
    const int64_t rounded = RoundUp(size);
    if (used_[device].fetch_add(rounded) + rounded > bytes_each_) {
      used_[device] -= rounded;
      return nullptr;
    }
    void* memory = MapGarbage(rounded);
    if (memory == nullptr) used_[device] -= rounded;
    return memory;
  }

  void Free(int device, void* memory, uint64_t size) {
    if (memory == nullptr) return;
    munmap(memory, RoundUp(size));
    used_[device] -= RoundUp(size);
  }

 private:
  // TensorFlow's allocator takes nearly all of a device's memory at once. So garbage is mapped, copy on write, from one
  // small file again and again: what is never written costs nothing.
  static constexpr int64_t kFile = 16 << 20;

  static int64_t RoundUp(uint64_t size) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return (std::max<int64_t>(size, 1) + page - 1) / page * page;
  }

  static int GarbageFile() {
    static const int file = [] {
      const int made = memfd_create("software-gpu-garbage", MFD_CLOEXEC);
      if (made < 0 || ftruncate(made, kFile) != 0) return -1;
      void* content = mmap(nullptr, kFile, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
      if (content == MAP_FAILED) return -1;
      memset(content, kGarbage, kFile);
      munmap(content, kFile);
      return made;
    }();
    return file;
  }

  static void* MapGarbage(int64_t size) {
    // Overcommitted on purpose, as memory that a process maps and does not touch always is.
    void* start = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED || GarbageFile() < 0) return nullptr;
    for (int64_t at = 0; at < size; at += kFile) {
      void* part = mmap(static_cast<char*>(start) + at, std::min(kFile, size - at), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, GarbageFile(), 0);
      if (part == MAP_FAILED) {
        munmap(start, size);
        return nullptr;
      }
    }
    return start;
  }

  int64_t bytes_each_ = 0;
  std::vector<std::atomic<int64_t>> used_;
};

}  // namespace softgpu

#endif
