#include "kernels/blas_info.h"

// Declared here: cblas.h stands in a folder that only the kernels of kernels/cpu/ search.
extern "C" char* openblas_get_corename(void);

namespace fovea {

std::string blas_core() {
  return openblas_get_corename();
}

}  // namespace fovea
