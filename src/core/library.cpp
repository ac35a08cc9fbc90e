#include "core/library.h"

#include <dlfcn.h>

namespace fovea {

Library::Library(const char* file, bool stays) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    why_ = error == nullptr ? file : error;
    return;
  }
  handle_ = {handle, [stays](void* h) {
               if (!stays) dlclose(h);
             }};
}

void* Library::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_.get(), name);
}

}  // namespace fovea
