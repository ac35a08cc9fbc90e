#pragma once
// What other systems needed for attention of the same size, out of the JSON files that their
// scripts write.

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::study {

// One call: B samples, H query heads, N queries and M keys.
struct AttentionSize {
  std::int64_t batch = 1, queries = 0, keys = 0;
  int heads = 1, kv_heads = 1, qk_dim = 64, v_dim = 64;
  bool causal = false;
  bool operator==(const AttentionSize&) const = default;
};

struct PeerTime {
  std::string name;        // "sdpa flash", "dense-causal-FLASH_ATTENTION"
  double forward_ms = 0;   // 0: not timed
  double backward_ms = 0;  // 0: not timed
};

// Rows of an array, or of the arrays of an object, whose keys then stand before the rows' names. A
// row is an object with B, H, N, D (of a value head), fwd_ms and bwd_ms, or ms for one query
// against N keys; and `name` or `be`. It may say Hk (else H), `causal` (else what its name says: a
// part causal or full, and nothing fits both), and D of queries as Dqk (else they are not
// compared). Rows without times are passed over.
class Peers {
 public:
  Peers() = default;
  // Throws IoError with the path for a file that cannot be read or is no JSON.
  explicit Peers(const std::string& file);
  // Those of this size, in the file's order.
  std::vector<PeerTime> of(const AttentionSize& size) const;

 private:
  struct Row {
    PeerTime time;
    std::int64_t batch = 0, heads = 0, kv_heads = 0, tokens = 0, v_dim = 0;
    std::int64_t qk_dim = 0;                             // 0: not said
    bool one_query = false, causal = true, full = true;  // may be either
  };
  std::vector<Row> rows_;
};

}  // namespace fovea::study
