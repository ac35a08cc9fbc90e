#pragma once
// What becomes of a file that has the name of one to be written.

namespace fovea::data {

enum class Existing { refuse, replace };

}  // namespace fovea::data
