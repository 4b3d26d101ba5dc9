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

  // Device `i` of TensorFlow is on card `cards[i]` and states `bytes[i]`. Called before TensorFlow makes its devices.
  void Configure(int count, const int* cards, const int64_t* bytes) {
    cards_.assign(cards, cards + count);
    bytes_.assign(bytes, bytes + count);
    limits_ = bytes_;
    used_ = std::vector<std::atomic<int64_t>>(count);
  }

  int count() const { return static_cast<int>(used_.size()); }
  int64_t bytes(int device) const { return bytes_[device]; }
  // Parts of one card are several devices.
  int CardOf(int device) const { return device >= 0 && device < count() ? cards_[device] : -1; }
  int64_t used(int device) const { return used_[device]; }

  // Less memory than the devices of a card state; with -1, all of it again on all cards.
  void Limit(int card, int64_t bytes) {
    for (int i = 0; i < count(); i++) {
      if (card < 0) limits_[i] = bytes_[i];
      if (cards_[i] == card) limits_[i] = bytes;
    }
  }

  // The card whose memory this is; -1 for the host's.
  int OwnerOf(const void* memory) {
    std::lock_guard<std::mutex> locked(lock_);
    const auto* found = RegionOf(memory);
    return found == nullptr ? -1 : cards_[found->second.device];
  }

  // How far from the start of the card's memory.
  int64_t OffsetOf(const void* memory) {
    std::lock_guard<std::mutex> locked(lock_);
    const auto* found = RegionOf(memory);
    return found == nullptr ? 0 : found->second.offset + (static_cast<const char*>(memory) - found->first);
  }

  // Null where the device has no such memory left. Aligned to a page.
  void* Allocate(int device, uint64_t size) {
    const int64_t rounded = RoundUp(size);
    if (used_[device].fetch_add(rounded) + rounded > limits_[device]) {
      used_[device] -= rounded;
      return nullptr;
    }
    void* memory = MapGarbage(rounded);
    if (memory == nullptr) {
      used_[device] -= rounded;
      return nullptr;
    }
    std::lock_guard<std::mutex> locked(lock_);
    int64_t offset = 0;
    for (const auto& [start, region] : regions_) {
      if (cards_[region.device] == cards_[device]) offset = std::max(offset, region.offset + region.size);
    }
    regions_[static_cast<char*>(memory)] = {device, rounded, offset};
    return memory;
  }

  void Free(int device, void* memory, uint64_t size) {
    if (memory == nullptr) return;
    {
      std::lock_guard<std::mutex> locked(lock_);
      regions_.erase(static_cast<char*>(memory));
    }
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

  struct Region {
    int device;
    int64_t size, offset;
  };

  const std::pair<char* const, Region>* RegionOf(const void* memory) const {
    auto* at = static_cast<char*>(const_cast<void*>(memory));
    auto after = regions_.upper_bound(at);
    if (after == regions_.begin()) return nullptr;
    const auto& found = *std::prev(after);
    return at < found.first + found.second.size ? &found : nullptr;
  }

  std::vector<int> cards_;
  std::vector<int64_t> bytes_, limits_;
  std::mutex lock_;
  std::map<char*, Region> regions_;
  std::vector<std::atomic<int64_t>> used_;
};

}  // namespace softgpu

#endif
