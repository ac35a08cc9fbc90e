#include "train/rank_checks.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "train/environment.h"

namespace fovea::train {

namespace {

// Of all settings but those that each rank may have for itself: the others decide which operations
// the ranks call together.
std::string settings_hash(const RunConfig& config) {
  config::Node node = config.resolved;
  for (const char* key : {"train.threads", "train.device", "train.resume", "log"})
    node.set(key, config::Node());
  return data::hash_hex(data::xxh3_64(node.json()));
}

}  // namespace

void require_same_computation(const Ranks& ranks, const RunConfig& config,
                              std::string_view data_fingerprint, const Arithmetic& arithmetic) {
  if (ranks.session->size() == 1) return;
  const std::string mine =
      cat("fovea ", kVersion, ", config ", config.result_hash(), ", settings ",
          settings_hash(config), ", data ", data_fingerprint, ", ", arithmetic.isa, ", ",
          arithmetic.blas_core, ", ", arithmetic.precision);
  const std::vector<std::string> all = ranks.session->gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    throw CommunicationError(cat("rank ", rank, " computes something else than rank 0: [",
                                 all[rank], "], but rank 0 has [", all.front(), "]"));
  }
}

void compare_weights(const Ranks& ranks, std::int64_t step, std::uint64_t mine) {
  const std::vector<std::string> all = ranks.session->gather(data::hash_hex(mine));
  std::map<std::string, int> votes;
  for (const std::string& value : all)
    ++votes[value];
  if (votes.size() == 1) return;
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool tie = 2 * most->second <= ranks.size();
  std::string odd;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!tie && all[rank] == most->first) continue;
    const dist::Peer& peer = ranks.session->peers()[rank];
    odd += cat(odd.empty() ? "" : ", ", "rank ", rank, " (host ", peer.host, ", pid ", peer.pid,
               ") has ", all[rank]);
  }
  throw CommunicationError(
      cat("step ", step, ": the ranks' weights have diverged: ", odd,
          tie ? std::string() : cat(", the other ", most->second, " have ", most->first),
          "; trust no checkpoint later than the last comparison that passed"));
}

std::string ranks_text(const Ranks& ranks, const RunConfig& config) {
  std::set<std::string> hosts;
  for (const dist::Peer& peer : ranks.session->peers())
    hosts.insert(peer.host);
  const DistributedConfig& d = config.distributed;
  return cat(ranks.size(), " ranks on ",
             join(std::vector<std::string>(hosts.begin(), hosts.end()), ", "), ", ",
             config.train.global_batch_size / config.train.micro_batch_size, " micro-batches of ",
             config.train.micro_batch_size, ", gradients ",
             d.reproducible ? "in one fixed tree" : "in any order",
             d.zero > 0 ? ", moments divided (ZeRO-1)" : "");
}

}  // namespace fovea::train
