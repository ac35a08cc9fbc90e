#pragma once
// Rows looked up in tables, and their gradient.

#include "kernels/dispatch.h"

namespace fovea {

// out[r,:] = table[ids[r],:] + positions_table[p,:], p = positions[r], or r mod period if
// `positions` is empty; without the second term if positions_table is empty.
//   ids, positions i32 [rows], in range; out [rows, cols]; tables [.., cols] of out's float dtype.
FOVEA_KERNEL(embedding_forward, StreamRef, const View& out, const View& ids, const View& table,
             const View& positions_table, const View& positions, std::int64_t period)
// dtable[ids[r],:] += dy[r,:], r ascending; an empty `ids` means r mod period.
//   dtable [V, cols] of acc(dy), accumulated; dy [rows, cols] any float dtype.
FOVEA_KERNEL(embedding_backward, StreamRef, const View& dtable, const View& ids, const View& dy,
             std::int64_t period)

}  // namespace fovea
