// CPU ranks over Gloo's TCP transport.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "core/error.h"
#include "core/half.h"
#include "core/log.h"
#include "core/text.h"
#include "dist/collective.h"
#include "dist/communicator.h"

namespace fovea::dist {

namespace {

// Longer than the session takes to name a rank that is lost: its message is the better one.
constexpr std::chrono::minutes kPatience{10};
// Gloo takes so many times a pair's timeout for its first connection.
constexpr int kGlooWaitsLonger = 5;
// Whoever connects to a port of Gloo's before the rank that it is for takes its place: on new ports
// it hardly comes again.
constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kLeast{1000};  // for one of them
// Of the messages of exchange(): Gloo's own operations use slots with a number in the highest byte.
constexpr std::uint64_t kExchangeSlot = 1;

// Pairs of connections between all ranks. Addresses travel through the session, so that a new
// communicator needs no name that others must not have.
class Mesh final : public ::gloo::Context {
 public:
  // Listens for each other rank. within: for all of them to connect.
  Mesh(const Session& session, std::chrono::milliseconds within)
      : Context(session.rank(), session.size()),
        deadline_(std::chrono::steady_clock::now() + within) {
    ::gloo::transport::tcp::attr at;
    at.hostname = session.local_address();
    device_ = ::gloo::transport::tcp::CreateDevice(at);
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(within / kGlooWaitsLonger);
    for (int i = 0; i < size; ++i) {
      if (i == rank) continue;
      auto& pair = transportContext_->createPair(i);
      pair->setLocalRank(0);
      const std::vector<char> address = pair->address().bytes();
      bytes_ = address.size();
      addresses_.append(address.begin(), address.end());
    }
    setTimeout(kPatience);
    transportContext_->setTimeout(kPatience);
  }

  // For each rank one to connect to, nothing for itself.
  const std::string& addresses() const { return addresses_; }

  // With everybody's addresses, by rank. What went wrong first; the others are connected all the
  // same, since they wait for this rank.
  std::string connect(const std::vector<std::string>& all) {
    std::string why;
    for (int i = 0; i < size; ++i) {
      if (i == rank) continue;
      const std::string& theirs = all[static_cast<std::size_t>(i)];
      if (theirs.size() != addresses_.size())
        return cat("rank ", i, " has another version of Gloo");
      const auto own =
          theirs.begin() + static_cast<std::ptrdiff_t>(
                               static_cast<std::size_t>(rank < i ? rank : rank - 1) * bytes_);
      try {
        transportContext_->getPair(i)->connect({own, own + static_cast<std::ptrdiff_t>(bytes_)});
      } catch (const std::exception& e) {
        if (why.empty()) why = cat("with rank ", i, ": Gloo says ", e.what());
        if (std::chrono::steady_clock::now() >= deadline_) break;
      }
    }
    return why;
  }

 private:
  const std::chrono::steady_clock::time_point deadline_;
  std::string addresses_;
  std::size_t bytes_ = 0;
};

// Gloo hands over untyped buffers; `out` may be one of the two. 16-bit values are added in f32.
template <class T, class Combine>
auto combined(Combine combine) {
  return [combine](void* out, const void* a, const void* b, std::size_t count) {
    auto* const to = static_cast<T*>(out);
    const auto *const left = static_cast<const T*>(a), *const right = static_cast<const T*>(b);
    for (std::size_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(combine(left[i], right[i]));
  };
}

template <class T, class Wide>
::gloo::AllreduceOptions::Func combination(Reduce how) {
  if (how == Reduce::sum)
    return combined<T>([](T a, T b) { return static_cast<Wide>(a) + static_cast<Wide>(b); });
  return combined<T>([](T a, T b) {  // NaN wins
    const Wide x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    return x > y || x != x ? x : y;
  });
}

template <class T, class Wide = T>
void set_up(::gloo::AllreduceOptions& options, const View& values, Reduce how) {
  options.setOutput(values.ptr<T>(), static_cast<std::size_t>(values.numel()));
  options.setReduceFunction(combination<T, Wide>(how));
}

void set_up_for_dtype(::gloo::AllreduceOptions& options, const View& values, Reduce how) {
  switch (values.dtype) {
    case DType::f64:
      return set_up<double>(options, values, how);
    case DType::f32:
      return set_up<float>(options, values, how);
    case DType::bf16:
      return set_up<BFloat16, float>(options, values, how);
    case DType::f16:
      return set_up<Half, float>(options, values, how);
    case DType::i64:
      return set_up<std::int64_t>(options, values, how);
    case DType::i32:
      return set_up<std::int32_t>(options, values, how);
    case DType::u8:
      return set_up<std::uint8_t, int>(options, values, how);
  }
}

std::size_t bytes_of(const View& view) {
  return static_cast<std::size_t>(view.numel() * size_of(view.dtype));
}

std::string text_of(const View& view) {
  return cat(view.numel(), " ", name_of(view.dtype));
}

class Gloo final : public Communicator {
 public:
  Gloo(Session& session, std::chrono::milliseconds within) : session_(session) {
    require_ports();
    const auto deadline = std::chrono::steady_clock::now() + within;
    run("connecting all ranks", [&] {
      for (int attempt = 1; !connect(deadline, attempt); ++attempt) {
      }
    });
  }
  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }

  void all_reduce(const View& values, Reduce how, Stream& /*stream*/) override {
    check(values);
    if (values.numel() == 0) return;
    run(cat("all_reduce of ", text_of(values)), [&] {
      ::gloo::AllreduceOptions options(mesh_);
      set_up_for_dtype(options, values, how);
      ::gloo::allreduce(options);
    });
  }

  void exchange(const View& send, const View& receive, int peer, Stream& /*stream*/) override {
    check(send);
    check(receive);
    FOVEA_ASSERT(peer != rank());
    run(cat("exchange of ", text_of(send), " for ", text_of(receive), " with ", name_of(peer)),
        [&] {
          const auto out = mesh_->createUnboundBuffer(send.data, bytes_of(send));
          const auto in = mesh_->createUnboundBuffer(receive.data, bytes_of(receive));
          if (in->size > 0) in->recv(peer, kExchangeSlot);
          if (out->size > 0) out->send(peer, kExchangeSlot);
          if (out->size > 0) out->waitSend(kPatience);
          if (in->size > 0) in->waitRecv(kPatience);
        });
  }

  // Not Gloo's: behind the session's, no rank has anything of Gloo's left to read, so that it may
  // close its connections.
  void barrier() override {
    run("barrier", [&] { session_.barrier(); });
  }

 private:
  // All ranks decide the same: whether all are connected, which is tried once more, or that it
  // cannot be, which throws.
  bool connect(std::chrono::steady_clock::time_point deadline, int attempt) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    std::string why;
    try {
      mesh_ = std::make_shared<Mesh>(session_, std::max(left, kLeast));
    } catch (const std::exception& e) {
      mesh_.reset();
      why = cat("Gloo says ", e.what(), hint(e.what()));
    }
    require_nobody_failed(session_.gather(why));
    why = mesh_->connect(session_.gather(mesh_->addresses()));
    const std::vector<std::string> all = session_.gather(why);
    const auto failed =
        std::find_if(all.begin(), all.end(), [](const auto& w) { return !w.empty(); });
    if (failed == all.end()) return true;
    mesh_.reset();
    if (attempt == kAttempts) require_nobody_failed(all);
    if (rank() == 0)
      log::warn(cat("connecting all ranks: ", name_of(static_cast<int>(failed - all.begin())), " ",
                    *failed,
                    "; perhaps a stranger connected to its port; once more, on new ports"));
    return false;
  }

  // What each rank says that went wrong, by rank.
  void require_nobody_failed(const std::vector<std::string>& all) const {
    const auto failed =
        std::find_if(all.begin(), all.end(), [](const auto& why) { return !why.empty(); });
    if (failed != all.end())
      throw CommunicationError(cat("connecting all ranks failed on ",
                                   name_of(static_cast<int>(failed - all.begin())), ": ", *failed));
  }

  static void check(const View& view) {
    FOVEA_ASSERT(view.device.is_cpu() && view.is_contiguous());
  }

  std::string name_of(int rank) const {
    const Peer& peer = session_.peers()[static_cast<std::size_t>(rank)];
    return cat("rank ", rank, " (host ", peer.host, ", pid ", peer.pid, ")");
  }

  // Each rank listens for each other one on a port of its own, so that those of a machine run out.
  std::int64_t ranks_here() const {
    const auto& peers = session_.peers();
    const std::string& host = peers[static_cast<std::size_t>(rank())].host;
    return std::count_if(peers.begin(), peers.end(),
                         [&](const Peer& peer) { return peer.host == host; });
  }
  std::string ports_text() const {
    return cat(ranks_here(), " ranks on one machine need ", ranks_here() * (size() - 1), " ports");
  }
  void require_ports() const {
    std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
    std::int64_t first = 0, last = 0;
    if (!(range >> first >> last) || ranks_here() * (size() - 1) <= last - first + 1) return;
    throw ConfigError(cat(ports_text(), " for Gloo, but the system gives away ", last - first + 1,
                          " (net.ipv4.ip_local_port_range): start fewer"));
  }
  std::string hint(std::string_view error) const {
    if (error.find("Address already in use") == std::string_view::npos) return {};
    return cat("; ", ports_text(), ": start fewer");
  }

  template <class Work>
  void run(const std::string& what, const Work& work) {
    const Collective waits(session_);
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw CommunicationError(
          cat(what, " failed on rank ", rank(), " of ", size(), ": Gloo says ", error.what()));
    }
  }

  Session& session_;
  std::shared_ptr<Mesh> mesh_;
};

}  // namespace

std::unique_ptr<Communicator> gloo(Session& session, std::chrono::milliseconds within) {
  return std::make_unique<Gloo>(session, within);
}

}  // namespace fovea::dist
