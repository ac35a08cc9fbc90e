#include <nvtx3/nvToolsExt.h>

#include "core/range.h"

namespace fovea {

Range::Range(const char* name) {
  nvtxRangePushA(name);
}

Range::~Range() {
  nvtxRangePop();
}

}  // namespace fovea
