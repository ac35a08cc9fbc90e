// fovea check: what is registered is tried against what it promises.

#include <vector>

#include "verbs/verbs.h"

namespace fovea::apps {

ExitCode check(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"ops", "[NAME ...]", "gradients, compositions and precisions of ops", check_ops},
      {"attention", "[KIND ...]", "everything a method promises; or one case from a file",
       check_attention},
  };
  return run_verb("fovea check", verbs, arguments, out);
}

}  // namespace fovea::apps
