#include "train/rank_checks.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "dist/wire.h"
#include "train/environment.h"
#include "train/flat_settings.h"

namespace fovea::train {

namespace {

constexpr std::size_t kMostKeys = 8;  // in a message
constexpr std::size_t kMostCharacters = 80;

using Values = std::map<std::string, std::string>;

// All settings but those that each rank may have for itself, which decide what operations the ranks
// call together.
Values settings_of(const RunConfig& config) {
  config::Node node = config.resolved;
  for (const char* key : {"train.threads", "train.device", "train.resume", "log"})
    node.set(key, config::Node());
  Values out = flat_settings(node);
  out["the version of fovea"] = kVersion;
  return out;
}

std::string packed(const Values& values) {
  dist::Body out;
  for (const auto& [key, value] : values)
    out.add(std::string_view(key)).add(std::string_view(value));
  return out.bytes();
}

Values unpacked(const std::string& bytes) {
  Values out;
  dist::BodyReader reader(bytes);
  while (true) {
    const std::string key = reader.text(), value = reader.text();
    if (!reader.good()) return out;
    out[key] = value;
  }
}

std::string shortened(const std::string& value) {
  return value.size() <= kMostCharacters ? value : value.substr(0, kMostCharacters) + "...";
}

// "optim.lr is 0.001, but 0.002 on rank 0; ..."
std::string differences(const Values& theirs, const Values& first) {
  Values all = first;
  all.insert(theirs.begin(), theirs.end());
  const auto value_in = [](const Values& values, const std::string& key) {
    const auto at = values.find(key);
    return at == values.end() ? std::string("not set") : at->second;
  };
  std::vector<std::string> out;
  std::size_t more = 0;
  for (const auto& [key, unused] : all) {
    const std::string value = value_in(theirs, key), wanted = value_in(first, key);
    if (value == wanted) continue;
    if (out.size() == kMostKeys) {
      ++more;
    } else {
      out.push_back(cat(key, " is ", shortened(value), ", but ", shortened(wanted), " on rank 0"));
    }
  }
  if (more > 0) out.push_back(cat("and ", more, " more"));
  return join(out, "; ");
}

// `hash`: of what is not in the values.
void require_same(const Ranks& ranks, const Values& values, const std::string& hash) {
  const std::string mine = packed(values);
  // Whole only where they differ: all ranks see that, and it is long.
  const std::vector<std::string> hashes =
      ranks.session->gather(cat(data::hash_hex(data::xxh3_64(mine)), hash));
  const auto other = std::find_if(hashes.begin(), hashes.end(),
                                  [&](const std::string& its) { return its != hashes.front(); });
  if (other == hashes.end()) return;
  const auto rank = static_cast<std::size_t>(other - hashes.begin());
  const std::vector<std::string> all = ranks.session->gather(mine);
  const std::string what = differences(unpacked(all[rank]), unpacked(all.front()));
  throw ConfigError(
      cat(dist::name_of(ranks.session->peers()[rank]), " computes something else than rank 0: ",
          what.empty() ? cat("its settings' hash is ", *other, ", but ", hashes.front()) : what,
          "; all ranks need the same command, configuration, data and build"));
}

}  // namespace

void require_same_settings(const Ranks& ranks, const RunConfig& config,
                           const std::map<std::string, std::string>& options) {
  if (ranks.session->size() == 1) return;
  Values values = settings_of(config);
  values.insert(options.begin(), options.end());
  require_same(ranks, values, {});
}

void require_same_computation(const Ranks& ranks, const RunConfig& config,
                              std::string_view data_fingerprint, const Arithmetic& arithmetic) {
  if (ranks.session->size() == 1) return;
  Values values = settings_of(config);
  values["the data's fingerprint"] = data_fingerprint;
  values["the instruction set"] = arithmetic.isa;
  values["the BLAS core"] = arithmetic.blas_core;
  values["the precision"] = arithmetic.precision;
  require_same(ranks, values, cat(" ", config.result_hash()));
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
