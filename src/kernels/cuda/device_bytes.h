#pragma once
// Memory that a launcher or a library keeps beside the allocators.

#include <cstddef>

namespace fovea::cuda {

// cudaMalloc'd on the current device, to be given to cudaFree. Where there is none the allocators
// first give back what they do not use. Throws OutOfMemory, which names `purpose` and what holds
// the device's memory.
void* device_bytes(std::size_t bytes, const char* purpose);

}  // namespace fovea::cuda
