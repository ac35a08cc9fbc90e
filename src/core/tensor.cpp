#include "core/tensor.h"

#include <cstring>

#include "core/error.h"
#include "core/half.h"
#include "core/text.h"

namespace fovea {

class Storage {
 public:
  Storage(Allocator& from, std::size_t bytes, const char* tag)
      : from_(from), data_(from.take(bytes, tag)), bytes_(bytes) {}
  ~Storage() { from_.give(data_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  char* data() const { return static_cast<char*>(data_); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

 private:
  Allocator& from_;
  void* data_;
  std::size_t bytes_;
};

namespace {

double load(const char* at, DType dtype) {
  switch (dtype) {
    case DType::f64: {
      double v;
      std::memcpy(&v, at, sizeof v);
      return v;
    }
    case DType::f32: {
      float v;
      std::memcpy(&v, at, sizeof v);
      return static_cast<double>(v);
    }
    case DType::bf16:
    case DType::f16: {
      std::uint16_t v;
      std::memcpy(&v, at, sizeof v);
      return static_cast<double>(dtype == DType::f16 ? half_value(v) : bf16_value(v));
    }
    case DType::i64: {
      std::int64_t v;
      std::memcpy(&v, at, sizeof v);
      return static_cast<double>(v);
    }
    case DType::i32: {
      std::int32_t v;
      std::memcpy(&v, at, sizeof v);
      return v;
    }
    case DType::u8:
      return static_cast<double>(static_cast<unsigned char>(*at));
  }
  return 0;
}

template <class T>
void put(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void store(char* at, DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return put(at, value);
    case DType::f32:
      return put(at, static_cast<float>(value));
    case DType::bf16:
      return put(at, bf16_bits(static_cast<float>(value)));
    case DType::f16:
      return put(at, half_bits(static_cast<float>(value)));
    case DType::i64:
      return put(at, static_cast<std::int64_t>(value));
    case DType::i32:
      return put(at, static_cast<std::int32_t>(value));
    case DType::u8:
      return put(at, static_cast<std::uint8_t>(value));
  }
}

// Calls fn(element offset in each view) for every index, row-major.
template <class F>
void each_offset(const View& a, const View& b, F&& fn) {
  std::int64_t index[kMaxRank] = {};
  const std::int64_t n = a.numel();
  std::int64_t at_a = 0, at_b = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    fn(at_a, at_b);
    for (int axis = a.rank - 1; axis >= 0; --axis) {
      at_a += a.stride[axis];
      at_b += b.stride[axis];
      if (++index[axis] < a.dim[axis]) break;
      at_a -= a.stride[axis] * a.dim[axis];
      at_b -= b.stride[axis] * b.dim[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

Tensor Tensor::empty(Shape shape, DType dtype, Device device, const char* tag) {
  return empty(persistent_allocator(device), shape, dtype, device, tag);
}

Tensor Tensor::empty(Allocator& from, Shape shape, DType dtype, Device device, const char* tag) {
  Tensor out;
  out.storage_ = std::make_shared<Storage>(
      from, static_cast<std::size_t>(shape.numel() * size_of(dtype)), tag);
  out.shape_ = shape;
  out.strides_ = shape.strides();
  out.dtype_ = dtype;
  out.device_ = device;
  return out;
}

Tensor Tensor::from(std::span<const double> values, Shape shape, DType dtype) {
  if (static_cast<std::int64_t>(values.size()) != shape.numel()) {
    throw ShapeError(cat("tensor: ", values.size(), " values for shape ", shape.str()));
  }
  Tensor out = empty(shape, dtype, kCpu);
  char* at = out.storage_->data();
  for (const double value : values) {
    store(at, dtype, value);
    at += size_of(dtype);
  }
  return out;
}

Tensor Tensor::reshape(Shape shape) const {
  if (!is_contiguous() || shape.numel() != numel()) {
    throw ShapeError(cat("reshape: ", shape_.str(), is_contiguous() ? "" : " (not contiguous)",
                         " to ", shape.str()));
  }
  Tensor out = *this;
  out.shape_ = shape;
  out.strides_ = shape.strides();
  return out;
}

Tensor Tensor::slice(int axis, std::int64_t from, std::int64_t to) const {
  if (axis < 0) axis += rank();
  if (axis < 0 || axis >= rank() || from < 0 || to < from || to > shape_[axis]) {
    throw ShapeError(cat("slice: axis ", axis, " from ", from, " to ", to, " of ", shape_.str()));
  }
  Tensor out = *this;
  out.shape_[axis] = to - from;
  out.offset_ += from * strides_[axis] * size_of(dtype_);
  return out;
}

Tensor Tensor::widened(std::int64_t rows) const {
  FOVEA_ASSERT(rank() >= 1 && is_contiguous() && rows >= shape_[0]);
  Tensor out = *this;
  out.shape_[0] = rows;
  FOVEA_ASSERT(offset_ + out.bytes() <= storage_->bytes());
  return out;
}

Tensor Tensor::permute(std::initializer_list<int> order) const {
  if (static_cast<int>(order.size()) != rank()) {
    throw ShapeError(cat("permute: ", order.size(), " axes for ", shape_.str()));
  }
  Tensor out = *this;
  int i = 0;
  for (const int axis : order) {
    out.shape_[i] = shape_[axis];
    out.strides_[i++] = strides_[axis];
  }
  return out;
}

Tensor Tensor::split_axis(int axis, std::int64_t inner) const {
  if (axis < 0 || axis >= rank() || rank() == kMaxRank || inner < 1 || shape_[axis] % inner != 0) {
    throw ShapeError(cat("split_axis: axis ", axis, " of ", shape_.str(), " by ", inner));
  }
  Tensor out = *this;
  out.shape_ = {};
  out.strides_ = {};
  for (int i = 0; i < rank(); ++i) {
    if (i == axis) {
      out.shape_.push_back(shape_[i] / inner);
      out.strides_.push_back(strides_[i] * inner);
    }
    out.shape_.push_back(i == axis ? inner : shape_[i]);
    out.strides_.push_back(strides_[i]);
  }
  return out;
}

Tensor Tensor::merge_axes(int axis) const {
  if (axis < 0 || axis + 1 >= rank() ||
      (shape_[axis] != 1 && strides_[axis] != strides_[axis + 1] * shape_[axis + 1])) {
    throw ShapeError(cat("merge_axes: axes ", axis, " and ", axis + 1, " of ", shape_.str()));
  }
  Tensor out = *this;
  out.shape_ = {};
  out.strides_ = {};
  for (int i = 0; i < rank(); ++i) {
    if (i == axis) continue;
    out.shape_.push_back(i == axis + 1 ? shape_[axis] * shape_[i] : shape_[i]);
    out.strides_.push_back(strides_[i]);
  }
  return out;
}

Tensor Tensor::joined(std::span<const Tensor> parts, int axis) {
  if (parts.empty() || !parts[0].defined()) return {};
  Tensor out = parts[0];
  for (const Tensor& part : parts.subspan(1)) {
    const std::int64_t end =
        out.offset_ + out.shape_[axis] * out.strides_[axis] * size_of(out.dtype_);
    if (!part.defined() || part.storage_ != out.storage_ || part.dtype_ != out.dtype_ ||
        part.rank() != out.rank() || part.offset_ != end || !(part.strides_ == out.strides_)) {
      return {};
    }
    for (int i = 0; i < out.rank(); ++i) {
      if (i != axis && part.shape_[i] != out.shape_[i]) return {};
    }
    out.shape_[axis] += part.shape_[axis];
  }
  return out.is_contiguous() ? out : Tensor{};
}

View Tensor::view() const {
  View out;
  if (!defined()) return out;
  out.data = storage_->data() + offset_;
  out.rank = rank();
  out.dtype = dtype_;
  out.device = device_;
  for (int i = 0; i < out.rank; ++i) {
    out.dim[i] = shape_[i];
    out.stride[i] = strides_[i];
  }
  return out;
}

Tensor Tensor::to(Device device, Stream& stream) const {
  Tensor out = empty(shape_, dtype_, device);
  transfer(out, *this, stream);
  return out;
}

void transfer(const Tensor& to, const Tensor& from, Stream& stream) {
  if (to.device().is_meta() || from.device().is_meta()) return;
  if (to.device().is_cpu() && from.device().is_cpu()) return copy_host(to.view(), from.view());
  if (!(to.shape() == from.shape())) {
    throw ShapeError(cat("transfer: ", from.shape().str(), " to ", to.shape().str()));
  }
  if (stream.capturing() && to.device().is_cpu() != from.device().is_cpu())
    throw DeviceError("a copy between host and device cannot be replayed: its host memory is gone");
  // Strides and conversions are dealt with on the host's side of the copy.
  const bool packed = to.is_contiguous() && from.is_contiguous();
  if (packed && to.dtype() == from.dtype()) {
    stream.copy(to.view().data, from.view().data, static_cast<std::size_t>(to.bytes()));
    if (to.device().is_cpu()) stream.synchronize();
    return;
  }
  if (to.device().is_cpu() && from.is_contiguous()) {
    const Tensor landed = from.to(kCpu, stream);
    return copy_host(to.view(), landed.view());
  }
  if (from.device().is_cpu() && to.is_contiguous()) {
    const Tensor made = Tensor::empty(to.shape(), to.dtype(), kCpu, "transfer");
    copy_host(made.view(), from.view());
    return transfer(to, made, stream);
  }
  throw ShapeError(cat("transfer: a strided tensor on ", name_of(from.device()), ", ",
                       from.shape().str(), ", to ", name_of(to.device()),
                       "; make it contiguous first"));
}

void copy_host(const View& to, const View& from) {
  bool same = to.rank == from.rank;
  for (int i = 0; same && i < to.rank; ++i)
    same = to.dim[i] == from.dim[i];
  if (!same) throw ShapeError("copy: the shapes differ");
  if (to.dtype == from.dtype && to.is_contiguous() && from.is_contiguous()) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(to.numel() * size_of(to.dtype)));
    return;
  }
  const std::int64_t to_size = size_of(to.dtype), from_size = size_of(from.dtype);
  each_offset(to, from, [&](std::int64_t a, std::int64_t b) {
    store(to.ptr<char>() + a * to_size, to.dtype,
          load(from.ptr<char>() + b * from_size, from.dtype));
  });
}

std::vector<double> Tensor::values() const {
  FOVEA_ASSERT(defined() && device_.is_cpu());
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(numel()));
  const View v = view();
  each_offset(v, v, [&](std::int64_t at, std::int64_t /*same*/) {
    out.push_back(load(v.ptr<char>() + at * size_of(dtype_), dtype_));
  });
  return out;
}

double Tensor::item() const {
  if (numel() != 1) throw ShapeError(cat("item: ", shape_.str(), " has more than one element"));
  return values()[0];
}

}  // namespace fovea
