#pragma once
// A tensor is a value; copying shares storage.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"
#include "core/stream.h"
#include "core/view.h"

namespace fovea {

class Storage;  // bytes and the Allocator they return to; private to core

class Tensor {
 public:
  Tensor() = default;
  // Persistent memory, uninitialised; activations use Ctx::empty.
  static Tensor empty(Shape shape, DType dtype, Device device, const char* tag = "persistent");
  static Tensor empty(Allocator& from, Shape shape, DType dtype, Device device, const char* tag);
  // A CPU tensor with these values, converted to `dtype`. Throws ShapeError if the count differs.
  static Tensor from(std::span<const double> values, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  std::int64_t size(int axis) const { return shape_[axis < 0 ? shape_.rank() + axis : axis]; }
  int rank() const { return shape_.rank(); }
  std::int64_t numel() const { return shape_.numel(); }
  std::int64_t bytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool is_contiguous() const { return view().is_contiguous(); }
  // Whether no other tensor shares the bytes, so that they may be overwritten.
  bool owns_alone() const { return storage_.use_count() == 1; }

  // No copies. reshape needs contiguity. Throw ShapeError.
  Tensor reshape(Shape shape) const;
  Tensor slice(int axis, std::int64_t from, std::int64_t to) const;
  // With rows behind the last one, which the layout of the storage must have left for it.
  // Contiguous.
  Tensor widened(std::int64_t rows) const;
  // Axis i of the result is axis order[i] of this one.
  Tensor permute(std::initializer_list<int> order) const;
  // Axis `axis` of size n becomes two, [n / inner, inner], whatever the strides.
  Tensor split_axis(int axis, std::int64_t inner) const;

  // Axes `axis` and axis + 1 become one: the way back from split_axis. Their strides must allow it.
  Tensor merge_axes(int axis) const;
  // The contiguous tensor that these are consecutive slices of along `axis`, if they lie so in one
  // storage; else undefined.
  static Tensor joined(std::span<const Tensor> parts, int axis);

  View view() const;  // an empty view if undefined
  // The bytes of a contiguous CPU tensor.
  template <class T>
  T* data() const {
    return static_cast<T*>(view().data);
  }
  // A contiguous copy on `device`, ordered on the stream; a copy to the host is complete when it
  // returns. Persistent memory. A strided device tensor throws ShapeError.
  Tensor to(Device device, Stream& stream) const;
  // Every element as a double, row-major. CPU only; for tests, checks and reports.
  std::vector<double> values() const;
  // The value of a one-element CPU tensor.
  double item() const;

 private:
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;  // bytes
  Shape shape_, strides_;
  DType dtype_ = DType::f32;
  Device device_;
};

// to = from, wherever they live, converted; ordered on the stream, complete when it returns if `to`
// is on the host. What lies on a device is contiguous. Throws ShapeError.
void transfer(const Tensor& to, const Tensor& from, Stream& stream);

// Copies or converts element by element, honouring strides; both on the CPU. Throws ShapeError.
void copy_host(const View& to, const View& from);

}  // namespace fovea
