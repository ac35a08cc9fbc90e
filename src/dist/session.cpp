#include "dist/session.h"

#include <map>
#include <mutex>

#include <unistd.h>

#include "core/text.h"
#include "dist/rendezvous.h"
#include "dist/session_client.h"
#include "dist/token.h"

namespace fovea::dist {

namespace {

class SoloSession final : public Session {
 public:
  SoloSession() : peers_{{0, own_host_name(), ::getpid()}}, launch_id_(random_number()) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<Peer>& peers() const override { return peers_; }
  std::uint64_t launch_id() const override { return launch_id_; }
  std::string local_address() const override { return "127.0.0.1"; }

  void set(const std::string& key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    store_[key] = value;
  }
  std::string get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = store_.find(key);
    if (found == store_.end())
      throw CommunicationError(cat("'", key, "' is asked for, but there is nobody else to set it"));
    return found->second;
  }
  std::vector<std::string> gather(std::string_view mine) override { return {std::string(mine)}; }

  void leave() override {}
  void fail(ExitCode /*code*/, const std::string& /*message*/) noexcept override {}

 private:
  std::vector<Peer> peers_;
  std::uint64_t launch_id_;
  std::mutex mutex_;
  std::map<std::string, std::string> store_;
};

}  // namespace

std::string name_of(const Peer& peer) {
  return cat("rank ", peer.rank, " (host ", peer.host, ", pid ", peer.pid, ")");
}

std::unique_ptr<Session> Session::join(const World& world, const SessionOptions& options) {
  if (!world.is_distributed()) return std::make_unique<SoloSession>();
  return join_over_tcp(world, options);
}

void Session::decline(const World& world, const SessionOptions& options, ExitCode code,
                      const std::string& message) noexcept {
  if (world.is_distributed()) decline_over_tcp(world, options, code, message);
}

}  // namespace fovea::dist
