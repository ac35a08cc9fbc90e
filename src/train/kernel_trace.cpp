#include "train/kernel_trace.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include <cxxabi.h>

#include "core/error.h"
#include "core/library.h"
#include "core/text.h"

namespace fovea::train {

namespace {

constexpr const char* kFiles[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so",
                                  "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                                  "/usr/local/cuda/lib64/libcupti.so"};

// CUPTI's interface as far as it is needed. The front of its records is the same in all versions
// since CUDA 9: kind, then 16 bytes in the times, then by kind the stream and the name.
constexpr std::uint32_t kCopy = 1, kSet = 2, kKernel = 10;
constexpr std::size_t kStart = 16, kEnd = 24, kKernelStream = 48, kKernelName = 104,
                      kMemoryStream = 40;
constexpr std::size_t kBufferBytes = std::size_t{8} << 20, kBufferAlignment = 8;
constexpr std::uint32_t kForced = 1;

using Request = void(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most);
using Complete = void(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                      std::size_t valid);
using NextRecord = int(std::uint8_t* buffer, std::size_t valid, void** record);

// Where CUPTI's callbacks put what they get.
struct Sink {
  NextRecord* next = nullptr;
  std::mutex mutex;
  std::vector<KernelRecord> records;
};

// The callbacks have no argument of ours, so this one pointer is the process's.
std::atomic<Sink*>& sink() {
  static std::atomic<Sink*> here{nullptr};
  return here;
}

template <class T>
T field(const void* record, std::size_t offset) {
  T out;
  std::memcpy(&out, static_cast<const char*>(record) + offset, sizeof out);
  return out;
}

void note(Sink& into, const void* record) {
  const auto kind = field<std::uint32_t>(record, 0);
  if (kind != kKernel && kind != kCopy && kind != kSet) return;
  KernelRecord out;
  out.start = field<std::uint64_t>(record, kStart);
  out.end = field<std::uint64_t>(record, kEnd);
  out.stream = field<std::uint32_t>(record, kind == kKernel ? kKernelStream : kMemoryStream);
  out.name = kind == kKernel ? short_kernel_name(field<const char*>(record, kKernelName))
             : kind == kCopy ? "copy"
                             : "set";
  into.records.push_back(std::move(out));
}

void request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most = 0;  // as many as fit
}

void complete(void* /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
              std::size_t /*bytes*/, std::size_t valid) {
  if (Sink* const into = sink().load(); into != nullptr) {
    const std::lock_guard lock(into->mutex);
    void* record = nullptr;
    while (into->next(buffer, valid, &record) == 0)
      note(*into, record);
  }
  std::free(buffer);  // NOLINT(cppcoreguidelines-no-malloc): CUPTI had it from aligned_alloc
}

// Nothing, and why, if there is none.
std::optional<Library> find(std::string& why) {
  for (const char* const file : kFiles) {
    // Its threads may call back until the end.
    Library library(file, true);
    if (library.defined()) return library;
    if (why.empty()) why = library.why();
  }
  why = cat("kernels are recorded by CUPTI, which cannot be loaded: ", why,
            "; libcupti.so comes with the CUDA toolkit (extras/CUPTI/lib64): put its folder into "
            "LD_LIBRARY_PATH");
  return std::nullopt;
}

Library loaded() {
  std::string why;
  std::optional<Library> library = find(why);
  if (!library) throw DeviceError(why);
  return std::move(*library);
}

}  // namespace

std::string why_no_kernel_trace() {
  std::string why;
  return find(why) ? std::string() : why;
}

struct KernelTrace::Cupti {
  Library library = loaded();
  Sink into;

  template <class F, class... A>
  void call(const char* name, const A&... arguments) {
    F* const function = library.function<F>(name);
    if (function == nullptr) throw DeviceError(cat("CUPTI lacks ", name));
    const int error = function(arguments...);
    if (error != 0) throw DeviceError(cat(name, ": CUPTI gives error ", error));
  }
};

KernelTrace::KernelTrace() : cupti_(std::make_unique<Cupti>()) {
  cupti_->into.next = cupti_->library.function<NextRecord>("cuptiActivityGetNextRecord");
  if (cupti_->into.next == nullptr) throw DeviceError("CUPTI lacks cuptiActivityGetNextRecord");
  Sink* none = nullptr;
  FOVEA_ASSERT(sink().compare_exchange_strong(none, &cupti_->into));
  try {
    cupti_->call<int(Request*, Complete*)>("cuptiActivityRegisterCallbacks", &request, &complete);
    for (const std::uint32_t kind : {kKernel, kCopy, kSet})
      cupti_->call<int(std::uint32_t)>("cuptiActivityEnable", kind);
  } catch (const Error&) {
    sink() = nullptr;
    throw;
  }
}

KernelTrace::~KernelTrace() {
  const auto disable = cupti_->library.function<int(std::uint32_t)>("cuptiActivityDisable");
  const auto flush = cupti_->library.function<int(std::uint32_t)>("cuptiActivityFlushAll");
  for (const std::uint32_t kind : {kKernel, kCopy, kSet}) {
    if (disable != nullptr) disable(kind);
  }
  if (flush != nullptr) flush(kForced);
  sink() = nullptr;
}

std::vector<KernelRecord> KernelTrace::take() {
  cupti_->call<int(std::uint32_t)>("cuptiActivityFlushAll", kForced);
  std::vector<KernelRecord> out;
  {
    const std::lock_guard lock(cupti_->into.mutex);
    out = std::exchange(cupti_->into.records, {});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const KernelRecord& a, const KernelRecord& b) { return a.start < b.start; });
  return out;
}

std::string short_kernel_name(const char* name) {
  if (name == nullptr) return "unnamed";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string out = status == 0 ? plain.get() : name;
  for (const std::string_view noise :
       {"void ", "(anonymous namespace)::", "fovea::cuda::", "fovea::"}) {
    for (std::size_t at; (at = out.find(noise)) != std::string::npos;)
      out.erase(at, noise.size());
  }
  // The parameters start at the first parenthesis outside of template arguments.
  int depth = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '<') ++depth;
    if (out[i] == '>') --depth;
    if (out[i] == '(' && depth == 0) return out.substr(0, i);
  }
  return out;
}

}  // namespace fovea::train
