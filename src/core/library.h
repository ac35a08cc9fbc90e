#pragma once
// A shared library that this machine may lack, found at run time.

#include <memory>
#include <string>

namespace fovea {

class Library {
 public:
  // Not found is no error: see defined() and why(). `stays` loaded to the end of the process: for
  // libraries that leave threads behind.
  explicit Library(const char* file, bool stays = false);

  bool defined() const { return handle_ != nullptr; }
  const std::string& why() const { return why_; }  // it could not be loaded
  // The function of that name and type, or null.
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::shared_ptr<void> handle_;
  std::string why_;
};

}  // namespace fovea
