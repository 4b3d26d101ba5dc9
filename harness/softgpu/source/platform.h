// TensorFlow's StreamExecutor C API over Machine. Everything is done when a call returns: a stream has nothing to wait for.
#ifndef HARNESS_SOFTGPU_PLATFORM_H_
#define HARNESS_SOFTGPU_PLATFORM_H_

#include <chrono>
#include <cstring>

#include "faults.h"
#include "machine.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

struct SP_Stream_st {};
struct SP_Event_st {};
struct SP_Timer_st {
  std::chrono::steady_clock::time_point started, stopped;
};

namespace softgpu {

inline void Ok(TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

// ---- memory

inline void Allocate(const SP_Device* device, uint64_t size, int64_t /*space*/, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = Machine::Get().Allocate(device->ordinal, size);
  memory->size = memory->opaque == nullptr ? 0 : size;
}

inline void Deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  Machine::Get().Free(device->ordinal, memory->opaque, memory->size);
  memory->opaque = nullptr;
  memory->size = 0;
}

inline void* HostAllocate(const SP_Device*, uint64_t size) {
  void* memory = nullptr;
  return posix_memalign(&memory, 256, size) == 0 ? memory : nullptr;
}

inline void HostDeallocate(const SP_Device*, void* memory) { free(memory); }

inline TF_Bool AllocatorStats(const SP_Device* device, SP_AllocatorStats* stats) {
  stats->struct_size = SP_ALLOCATORSTATS_STRUCT_SIZE;
  stats->bytes_in_use = Machine::Get().used(device->ordinal);
  return 1;
}

inline TF_Bool MemoryUsage(const SP_Device* device, int64_t* free, int64_t* total) {
  *total = Machine::Get().bytes(device->ordinal);
  *free = *total - Machine::Get().used(device->ordinal);
  return 1;
}

// ---- copies

inline void Copy(void* to, const void* from, uint64_t size, TF_Status* status) {
  const std::string problem = Faults::Get().Copy(to, from, size);
  TF_SetStatus(status, problem.empty() ? TF_OK : TF_INTERNAL, problem.c_str());
}

inline void FromDevice(const SP_Device*, SP_Stream, void* host, const SP_DeviceMemoryBase* device, uint64_t size,
                       TF_Status* status) {
  Copy(host, device->opaque, size, status);
}

inline void ToDevice(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* device, const void* host, uint64_t size,
                     TF_Status* status) {
  Copy(device->opaque, host, size, status);
}

inline void BetweenDevices(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                           uint64_t size, TF_Status* status) {
  Copy(to->opaque, from->opaque, size, status);
}

inline void SyncFromDevice(const SP_Device* on, void* host, const SP_DeviceMemoryBase* device, uint64_t size,
                           TF_Status* status) {
  FromDevice(on, nullptr, host, device, size, status);
}

inline void SyncToDevice(const SP_Device* on, SP_DeviceMemoryBase* device, const void* host, uint64_t size,
                         TF_Status* status) {
  ToDevice(on, nullptr, device, host, size, status);
}

inline void SyncBetweenDevices(const SP_Device* on, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                               uint64_t size, TF_Status* status) {
  BetweenDevices(on, nullptr, to, from, size, status);
}

inline void SetZero(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint64_t size, TF_Status* status) {
  memset(memory->opaque, 0, size);
  Ok(status);
}

inline void SetBytes(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint8_t value, uint64_t size,
                     TF_Status* status) {
  memset(memory->opaque, value, size);
  Ok(status);
}

inline void SetWords(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint32_t value, uint64_t size,
                     TF_Status* status) {
  std::fill_n(static_cast<uint32_t*>(memory->opaque), size / sizeof(value), value);
  Ok(status);
}

// ---- streams, events, timers

inline void CreateStream(const SP_Device*, SP_Stream* stream, TF_Status* status) {
  *stream = new SP_Stream_st;
  Ok(status);
}
inline void DestroyStream(const SP_Device*, SP_Stream stream) { delete stream; }
inline void StreamWaits(const SP_Device*, SP_Stream, SP_Stream, TF_Status* status) { Ok(status); }
inline void StreamStatus(const SP_Device*, SP_Stream, TF_Status* status) { Ok(status); }

inline void CreateEvent(const SP_Device*, SP_Event* event, TF_Status* status) {
  *event = new SP_Event_st;
  Ok(status);
}
inline void DestroyEvent(const SP_Device*, SP_Event event) { delete event; }
inline SE_EventStatus EventStatus(const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; }
inline void RecordEvent(const SP_Device*, SP_Stream, SP_Event, TF_Status* status) { Ok(status); }
inline void WaitForEvent(const SP_Device* const, SP_Stream, SP_Event, TF_Status* const status) { Ok(status); }
inline void HostWaitsForEvent(const SP_Device*, SP_Event, TF_Status* status) { Ok(status); }
inline void HostWaitsForStream(const SP_Device*, SP_Stream, TF_Status* status) { Ok(status); }
inline void HostWaitsForAll(const SP_Device*, TF_Status* status) { Ok(status); }

inline void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status* status) {
  *timer = new SP_Timer_st;
  Ok(status);
}
inline void DestroyTimer(const SP_Device*, SP_Timer timer) { delete timer; }
inline void StartTimer(const SP_Device*, SP_Stream, SP_Timer timer, TF_Status* status) {
  timer->started = std::chrono::steady_clock::now();
  Ok(status);
}
inline void StopTimer(const SP_Device*, SP_Stream, SP_Timer timer, TF_Status* status) {
  timer->stopped = std::chrono::steady_clock::now();
  Ok(status);
}
inline uint64_t Nanoseconds(SP_Timer timer) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(timer->stopped - timer->started).count();
}

inline TF_Bool HostCallback(const SP_Device*, SP_Stream, SE_StatusCallbackFn function, void* argument) {
  TF_Status* status = TF_NewStatus();
  function(argument, status);
  TF_DeleteStatus(status);
  return 1;
}

// ---- the tables that TensorFlow asks for

inline void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = "software GPU";
  params->device->device_vendor = "tf-placement-harness";
  params->device->pci_bus_id = "";
  Ok(status);
}

inline void CreateStreamExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
  SP_StreamExecutor* executor = params->stream_executor;
  executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  executor->allocate = Allocate;
  executor->deallocate = Deallocate;
  executor->host_memory_allocate = HostAllocate;
  executor->host_memory_deallocate = HostDeallocate;
  executor->get_allocator_stats = AllocatorStats;
  executor->device_memory_usage = MemoryUsage;
  executor->create_stream = CreateStream;
  executor->destroy_stream = DestroyStream;
  executor->create_stream_dependency = StreamWaits;
  executor->get_stream_status = StreamStatus;
  executor->create_event = CreateEvent;
  executor->destroy_event = DestroyEvent;
  executor->get_event_status = EventStatus;
  executor->record_event = RecordEvent;
  executor->wait_for_event = WaitForEvent;
  executor->create_timer = CreateTimer;
  executor->destroy_timer = DestroyTimer;
  executor->start_timer = StartTimer;
  executor->stop_timer = StopTimer;
  executor->memcpy_dtoh = FromDevice;
  executor->memcpy_htod = ToDevice;
  executor->memcpy_dtod = BetweenDevices;
  executor->sync_memcpy_dtoh = SyncFromDevice;
  executor->sync_memcpy_htod = SyncToDevice;
  executor->sync_memcpy_dtod = SyncBetweenDevices;
  executor->block_host_for_event = HostWaitsForEvent;
  executor->block_host_until_done = HostWaitsForStream;
  executor->synchronize_all_activity = HostWaitsForAll;
  executor->mem_zero = SetZero;
  executor->memset = SetBytes;
  executor->memset32 = SetWords;
  executor->host_callback = HostCallback;
  Ok(status);
}

inline void DeviceCount(const SP_Platform*, int* count, TF_Status* status) {
  *count = Machine::Get().count();
  Ok(status);
}
inline void DestroyDevice(const SP_Platform*, SP_Device*) {}
inline void CreateDeviceFunctions(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status* status) {
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  Ok(status);
}
inline void DestroyDeviceFunctions(const SP_Platform*, SP_DeviceFns*) {}
inline void DestroyStreamExecutor(const SP_Platform*, SP_StreamExecutor*) {}
inline void CreateTimerFunctions(const SP_Platform*, SP_TimerFns* functions, TF_Status* status) {
  functions->nanoseconds = Nanoseconds;
  Ok(status);
}
inline void DestroyTimerFunctions(const SP_Platform*, SP_TimerFns*) {}
inline void DestroyPlatform(SP_Platform*) {}
inline void DestroyPlatformFunctions(SP_PlatformFns*) {}

inline void DescribePlatform(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  // TensorFlow's error for jit_compile=True has this name in it: there is no compiler for this platform.
  params->platform->name = "SOFTWARE_GPU_WITHOUT_XLA";
  params->platform->type = "GPU";
  params->platform->supports_unified_memory = 0;
  params->platform->use_bfc_allocator = 1;
  SP_PlatformFns* functions = params->platform_fns;
  functions->get_device_count = DeviceCount;
  functions->create_device = CreateDevice;
  functions->destroy_device = DestroyDevice;
  functions->create_device_fns = CreateDeviceFunctions;
  functions->destroy_device_fns = DestroyDeviceFunctions;
  functions->create_stream_executor = CreateStreamExecutor;
  functions->destroy_stream_executor = DestroyStreamExecutor;
  functions->create_timer_fns = CreateTimerFunctions;
  functions->destroy_timer_fns = DestroyTimerFunctions;
  params->destroy_platform = DestroyPlatform;
  params->destroy_platform_fns = DestroyPlatformFunctions;
  Ok(status);
}

}  // namespace softgpu

#endif
