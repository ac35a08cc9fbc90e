// GPU ranks over NCCL, which is looked for at run time: a machine with one GPU needs none.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include <cuda_runtime.h>
#include <nccl.h>

#include "core/cuda_queue.h"
#include "core/error.h"
#include "core/library.h"
#include "core/text.h"
#include "dist/collective.h"
#include "dist/communicator.h"

namespace fovea::dist {

namespace {

constexpr const char* kFile = "libnccl.so.2";

Library loaded() {
  // NCCL would add inside the NVLink switches where they can: in an order and with a rounding of
  // their own, through multicast memory that not every machine hands out, and past the norm that
  // fovea bench comm compares with. Whoever wants it may set the variable.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  Library library(kFile, true);  // its threads stay
  if (!library.defined()) {
    throw DeviceError(cat("GPUs are connected by NCCL, which cannot be loaded: ", library.why(),
                          "; install Debian's libnccl2 or NVIDIA's package of that name, or put "
                          "the folder of libnccl.so.2 into LD_LIBRARY_PATH"));
  }
  return library;
}

// The functions of NCCL that are called here, as its header declares them.
struct Functions {
  Functions() {
    find(all_reduce, "ncclAllReduce");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(make_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRankConfig");
    find(finalize, "ncclCommFinalize");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(async_error, "ncclCommGetAsyncError");
    find(name_of, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
  }
  template <class F>
  void find(F*& function, const char* name) {
    function = library.function<F>(name);
    if (function == nullptr)
      throw DeviceError(cat(kFile, " lacks ", name, ": it is older than NCCL 2.14"));
  }

  Library library = loaded();
  decltype(ncclAllReduce)* all_reduce = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
  decltype(ncclGetUniqueId)* make_id = nullptr;
  decltype(ncclCommInitRankConfig)* init = nullptr;
  decltype(ncclCommFinalize)* finalize = nullptr;
  decltype(ncclCommDestroy)* destroy = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclCommGetAsyncError)* async_error = nullptr;
  decltype(ncclGetErrorString)* name_of = nullptr;
  decltype(ncclGetLastError)* last_error = nullptr;
};

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
  }
  return ncclUint8;
}

std::size_t count_of(const View& view) {
  return static_cast<std::size_t>(view.numel());
}

cudaStream_t stream_of(const Stream& stream) {
  return static_cast<cudaStream_t>(static_cast<CudaQueue*>(stream.ref().native)->stream);
}

class Nccl final : public Communicator {
 public:
  Nccl(Session& session, Device device, int blocks) : session_(session), device_(device) {
    FOVEA_ASSERT(device.is_cuda() && blocks >= 0);
    const cudaError_t error = cudaSetDevice(device.index);
    if (error != cudaSuccess) {
      cudaGetLastError();
      throw DeviceError(cat("cuda:", device.index, " cannot be used: ", cudaGetErrorString(error)));
    }
    const Collective waits(session_);
    ncclUniqueId id{};
    std::string said;
    if (rank() == 0) {
      check(nccl_.make_id(&id), "choosing a meeting point");
      said.assign(id.internal, sizeof id.internal);
    }
    said = session_.gather(said).front();
    FOVEA_ASSERT(said.size() == sizeof id.internal);
    std::memcpy(id.internal, said.data(), said.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (blocks > 0) {
      config.minCTAs = 1;
      config.maxCTAs = blocks;
    }
    check(nccl_.init(&comm_, size(), id, rank(), &config), "connecting to all ranks");
  }

  // In good order all ranks come here together; after an error nobody may be waited for.
  ~Nccl() override {
    if (comm_ == nullptr) return;
    ncclResult_t state = ncclSuccess;
    const bool ended = failed_ || std::uncaught_exceptions() > 0 ||
                       nccl_.async_error(comm_, &state) != ncclSuccess || state != ncclSuccess;
    if (ended || nccl_.finalize(comm_) != ncclSuccess)
      nccl_.abort(comm_);
    else
      nccl_.destroy(comm_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }

  void all_reduce(const View& values, Reduce how, Stream& stream) override {
    accept(values);
    if (values.numel() == 0) return;
    check(nccl_.all_reduce(values.data, values.data, count_of(values), type_of(values.dtype),
                           how == Reduce::sum ? ncclSum : ncclMax, comm_, stream_of(stream)),
          "all_reduce");
  }

  void exchange(const View& send, const View& receive, int peer, Stream& stream) override {
    accept(send);
    accept(receive);
    FOVEA_ASSERT(peer != rank());
    if (send.numel() == 0 && receive.numel() == 0) return;
    // One group, or both would send first and wait for each other.
    check(nccl_.group_start(), "exchange");
    ncclResult_t sent = ncclSuccess, received = ncclSuccess;
    if (send.numel() > 0)
      sent = nccl_.send(send.data, count_of(send), type_of(send.dtype), peer, comm_,
                        stream_of(stream));
    if (receive.numel() > 0)
      received = nccl_.receive(receive.data, count_of(receive), type_of(receive.dtype), peer, comm_,
                               stream_of(stream));
    const ncclResult_t ended = nccl_.group_end();
    for (const ncclResult_t result : {sent, received, ended})
      check(result, "exchange", peer);
  }

  // The session's: it needs no memory and no kernel of the device.
  void barrier() override {
    const Collective waits(session_);
    session_.barrier();
  }

 private:
  void accept(const View& view) const {
    FOVEA_ASSERT(view.device == device_ && view.is_contiguous());
  }

  void check(ncclResult_t result, const char* what, int peer = -1) {
    if (result == ncclSuccess) return;
    failed_ = true;
    std::string with;
    if (peer >= 0) {
      const Peer& other = session_.peers()[static_cast<std::size_t>(peer)];
      with = cat(" with rank ", peer, " (host ", other.host, ", pid ", other.pid, ")");
    }
    const char* const more = nccl_.last_error(comm_);
    throw CommunicationError(cat(
        what, with, " failed on rank ", rank(), " of ", size(), ": NCCL says ",
        nccl_.name_of(result), more == nullptr || *more == '\0' ? std::string() : cat(": ", more)));
  }

  Functions nccl_;
  Session& session_;
  Device device_;
  ncclComm_t comm_ = nullptr;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Communicator> nccl(Session& session, Device device, int blocks) {
  return std::make_unique<Nccl>(session, device, blocks);
}

}  // namespace fovea::dist
