#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace fovea {

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "fovea: internal error: %s is false at %s:%d\n", expression, file, line);
  std::abort();
}

}  // namespace fovea
