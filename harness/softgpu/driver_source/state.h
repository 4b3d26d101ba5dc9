// What the stand-ins for NVIDIA's driver libraries answer from: a file of lines `key value`, which harness/softgpu/drivers.py
// writes, and beside it a page of numbers that the software GPUs count up while they work.
#ifndef HARNESS_SOFTGPU_STATE_H_
#define HARNESS_SOFTGPU_STATE_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

namespace driver {

// How long each card has worked, when it last did, by CLOCK_MONOTONIC, both in nanoseconds; and whether it is lost.
// source/faults.h has the same layout; drivers.py knows its size.
struct Work {
  uint64_t busy_ns, last_ns, lost, unused;
};
constexpr int kMostCards = 64;
// A card that has done nothing for this long rests. A machine that is busy itself may sample no sooner.
constexpr uint64_t kAwakeNs = 2'000'000'000;

class State {
 public:
  static State& Get() {
    static State* state = new State;
    return *state;
  }

  void Open(const std::string& path) {
    std::lock_guard<std::mutex> locked(lock_);
    path_ = path;
    inode_ = 0;
    work_ = nullptr;
    const int file = open((path + ".work").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void* page = mmap(nullptr, sizeof(Work) * kMostCards, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) work_ = static_cast<const volatile Work*>(page);
    close(file);
  }

  // Whether there is a description at all.
  bool Known() {
    Refresh();
    return !values_.empty();
  }

  bool Find(const std::string& key, std::string* value) {
    Refresh();
    std::lock_guard<std::mutex> locked(lock_);
    auto found = values_.find(key);
    if (found == values_.end()) return false;
    *value = found->second;
    return true;
  }

  double Number(const std::string& key, double otherwise) {
    std::string value;
    return Find(key, &value) ? atof(value.c_str()) : otherwise;
  }

  double WorkedSeconds(int card) const { return work_ == nullptr ? 0.0 : work_[card].busy_ns * 1e-9; }

  bool Lost(int card) const { return work_ != nullptr && work_[card].lost != 0; }

  bool Busy(int card) const {
    if (work_ == nullptr || work_[card].last_ns == 0) return false;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000ull + now.tv_nsec < work_[card].last_ns + kAwakeNs;
  }

 private:
  State() = default;

  // The file is replaced as a whole, never written in place.
  void Refresh() {
    std::lock_guard<std::mutex> locked(lock_);
    struct stat now;
    if (path_.empty() || stat(path_.c_str(), &now) != 0) return;
    if (now.st_ino == inode_ && now.st_mtim.tv_nsec == changed_.tv_nsec && now.st_mtim.tv_sec == changed_.tv_sec) return;
    inode_ = now.st_ino;
    changed_ = now.st_mtim;
    values_.clear();
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const size_t space = line.find(' ');
      if (space != std::string::npos) values_[line.substr(0, space)] = line.substr(space + 1);
    }
  }

  std::mutex lock_;
  std::string path_;
  ino_t inode_ = 0;
  timespec changed_ = {};
  std::map<std::string, std::string> values_;
  const volatile Work* work_ = nullptr;
};

}  // namespace driver

#endif
