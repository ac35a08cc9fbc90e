#include "train/check_attention_input.h"

#include <algorithm>
#include <cmath>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::train {

using attention::AttentionSpec;

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

// A whole number that the method does not check itself.
int number_of(const std::string& key, const config::Node& value, std::int64_t least,
              std::int64_t most) {
  const std::int64_t number = value.as_int(key);
  if (number >= least && number <= most) return static_cast<int>(number);
  throw ConfigError(cat(value.place().str(), ": ", key, " is ", number, ", but must be in [", least,
                        ", ", most, "]"));
}

// Options that belong to the model rather than to the method, unless the method declares them
// itself.
void take_surroundings(CheckSetup& setup, const AttentionSpec& spec) {
  std::vector<std::pair<std::string, config::Node>> own;
  bool cross = setup.config.cross;
  for (const auto& [key, value] : setup.options.entries()) {
    const bool declared = std::any_of(spec.options.begin(), spec.options.end(),
                                      [&k = key](const config::Option& o) { return o.key == k; });
    bool taken = true;
    if (key == "causal")
      setup.config.causal = value.as_bool(key);
    else if (key == "cross")
      cross = value.as_bool(key);
    else if (key == "layer")
      setup.config.layer = number_of(key, value, 0, kMostTokens);
    else if (key == "n_layer")
      setup.config.n_layer = number_of(key, value, 1, kMostTokens);
    else if (key == "max_len")
      setup.config.max_len = number_of(key, value, 1, kMostTokens);
    else
      taken = false;
    if (declared || !taken) own.emplace_back(key, value);
  }
  setup.config.cross = cross && !setup.config.causal;
  setup.options = config::Node::map(std::move(own), setup.options.place());
}

// SPA's d' is in the shape of S, or of what S is learned from, unless the options say it.
void take_projected_width(CheckSetup& setup, const AttentionSpec& spec, const CheckInput& input) {
  constexpr const char* kKey = "proj_dim";
  const bool declared = std::any_of(spec.options.begin(), spec.options.end(),
                                    [](const config::Option& o) { return o.key == kKey; });
  if (!declared || setup.options.find(kKey) != nullptr) return;
  for (const char* name : {"param.S", "param.W", "draw.S"}) {
    if (!input.has(name) || input.shape(name).rank() == 0) continue;
    const std::string width = cat(input.shape(name).cols());
    setup.options.set(kKey, config::Node::scalar(width, setup.options.place()));
    return;
  }
}

bool has_projection(const AttentionSpec& spec, const CheckSetup& setup, std::string_view name) {
  if (spec.projections == nullptr) return name == "q" || name == "k" || name == "v";
  const auto list = spec.projections(
      setup.config, config::complete(setup.options, spec.options, "model.attention"));
  return std::any_of(list.begin(), list.end(),
                     [&](const attention::ProjectionSpec& p) { return p.name == name; });
}

Var leaf_of(const Tensor& x, DType dtype) {
  if (!x.defined()) return {};
  Tensor out = Tensor::empty(x.shape(), dtype, kCpu);
  copy_host(out.view(), x.view());
  return leaf(out);
}

bool holds(CheckKind kind, DType dtype) {
  switch (kind) {
    case CheckKind::real:
      return is_float(dtype);
    case CheckKind::mask:
      return dtype == DType::u8;
    case CheckKind::index:
      return dtype == DType::i32 || dtype == DType::i64;
  }
  return false;
}

const char* dtypes_of(CheckKind kind) {
  switch (kind) {
    case CheckKind::real:
      return "F32, F64, F16 or BF16";
    case CheckKind::mask:
      return "U8 or BOOL";
    case CheckKind::index:
      return "I32 or I64";
  }
  return "";
}

std::string names_in(const data::SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const data::SafetensorsEntry& entry : file.entries())
    names.push_back(entry.name);
  return names.empty() ? "none" : join(names, ", ");
}

CheckKind kind_of(DType dtype) {
  return is_float(dtype)      ? CheckKind::real
         : dtype == DType::u8 ? CheckKind::mask
                              : CheckKind::index;
}

// `from` is of the buffer's shape, or what each of its first axis's entries becomes.
void copy_to_all(const Tensor& to, const Tensor& from) {
  if (from.rank() == to.rank()) return copy_host(to.view(), from.view());
  for (std::int64_t i = 0; i < to.size(0); ++i)
    copy_host(to.slice(0, i, i + 1).reshape(from.shape()).view(), from.view());
}

}  // namespace

std::string CheckInput::metadata(const std::string& key) const {
  const auto found = file_.metadata().find(key);
  if (found == file_.metadata().end()) {
    throw ConfigError(cat(path(), ": __metadata__ has no ", key,
                          "; it must hold kind, a method's name, and options, a JSON object"));
  }
  return found->second;
}

Shape CheckInput::shape(const std::string& name) const {
  const data::SafetensorsEntry* entry = file_.find(name);
  if (entry == nullptr) {
    throw ConfigError(
        cat(path(), ": tensor ", name, " is missing; the file holds ", names_in(file_)));
  }
  if (entry->shape.size() > kMaxRank) {
    throw ConfigError(cat(path(), ": tensor ", name, " has ", entry->shape.size(), " axes"));
  }
  Shape out;
  for (const std::int64_t size : entry->shape)
    out.push_back(size);
  return out;
}

Tensor CheckInput::take(const std::string& name, CheckKind kind,
                        const std::function<bool(const Shape&)>& fits,
                        const std::string& expected) {
  used_.insert(name);
  if (!has(name)) return {};
  const Shape found = shape(name);
  if (!fits(found)) {
    throw ConfigError(
        cat(path(), ": tensor ", name, " is ", found.str(), ", but must be ", expected));
  }
  const data::SafetensorsEntry& entry = *file_.find(name);
  if (!holds(kind, entry.dtype)) {
    throw ConfigError(cat(path(), ": tensor ", name, " is ", entry.stored_dtype, ", but must be ",
                          dtypes_of(kind)));
  }
  Tensor out = file_.read(name);
  if (kind != CheckKind::mask) return out;
  const auto* flags = out.data<std::uint8_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    if (flags[i] > 1)
      throw IoError(cat(path(), ": tensor ", name, " is ", int{flags[i]}, " at element ", i,
                        ", but must be 0 or 1"));
  }
  return out;
}

Tensor CheckInput::take(const std::string& name, CheckKind kind, const Shape& expected) {
  return take(
      name, kind, [&](const Shape& s) { return s == expected; }, expected.str());
}

Tensor CheckInput::need(const std::string& name, CheckKind kind, const Shape& expected) {
  shape(name);
  return take(name, kind, expected);
}

Tensor CheckInput::need_any(const std::string& name, CheckKind kind, const Shape& whole) {
  Shape one;
  for (int axis = 1; axis < whole.rank(); ++axis)
    one.push_back(whole[axis]);
  shape(name);
  return take(
      name, kind, [&](const Shape& s) { return s == whole || (whole.rank() > 1 && s == one); },
      whole.rank() < 2 ? whole.str() : cat(whole.str(), " or ", one.str()));
}

void CheckInput::require_finite(const std::string& name, const Tensor& x, int axis,
                                const Tensor& valid) const {
  if (!x.defined()) return;
  const std::vector<double> values = x.values();
  const std::vector<double> flags = valid.defined() ? valid.values() : std::vector<double>();
  std::int64_t inside = 1;  // elements of one token
  for (int i = axis + 1; i < x.rank(); ++i)
    inside *= x.size(i);
  const std::int64_t tokens = flags.empty() ? 1 : x.size(axis),
                     sample = x.rank() == 0 ? 1 : x.numel() / std::max<std::int64_t>(x.size(0), 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto at = static_cast<std::int64_t>(i);
    const bool hidden =
        !flags.empty() &&
        flags[static_cast<std::size_t>(at / sample * tokens + at / inside % tokens)] == 0;
    if (!hidden)
      throw IoError(cat(path(), ": tensor ", name, " ", x.shape().str(), " is ", values[i],
                        " at element ", i,
                        "; what real tokens hold must be finite (key_valid marks padding)"));
  }
}

void CheckInput::refuse_rest(const std::string& kind) const {
  for (const data::SafetensorsEntry& entry : file_.entries()) {
    if (used_.count(entry.name) != 0) continue;
    throw ConfigError(cat(path(), ": tensor ", entry.name, " is unexpected for ", kind,
                          " with these options, which reads ",
                          join(std::vector<std::string>(used_.begin(), used_.end()), ", "),
                          "; leave it out"));
  }
}

CheckSetup read_setup(const CheckFileArgs& args, const AttentionSpec& spec,
                      const CheckInput& input) {
  const std::string kind = input.metadata("kind");
  if (attention::find_attention(kind) != &spec)
    throw ConfigError(cat(input.path(), ": holds a case of ", kind, ", not of ", args.kind));
  CheckSetup setup;
  setup.options = config::parse(input.metadata("options"), cat(input.path(), ": options"), false);
  if (setup.options.kind() != config::Node::Kind::map)
    throw ConfigError(cat(input.path(), ": options in __metadata__ are ", input.metadata("options"),
                          ", but must be a JSON object"));
  config::override_with(setup.options, args.overrides);
  if (!args.kernel.empty()) {
    const std::string assignment[] = {cat("kernel=", args.kernel)};
    config::override_with(setup.options, assignment);
  }
  const Shape q = input.shape("q"), v = input.shape("v");
  if (q.rank() != 4 || v.rank() != 4)
    throw ConfigError(
        cat(input.path(), ": q is ", q.str(), " and v ", v.str(), ", but both must have 4 axes"));
  for (const Shape& shape : {q, v}) {
    for (int axis = 0; axis < 4; ++axis) {
      if (shape[axis] > kMostTokens)
        throw ConfigError(
            cat(input.path(), ": a tensor is ", shape.str(), ", beyond 2^30 along an axis"));
    }
  }
  const auto whole = [](std::int64_t n) { return static_cast<int>(n); };
  setup.config = {.n_embd = whole(q[1] * v[3]),
                  .n_head = whole(q[1]),
                  .n_kv_head = whole(v[1]),
                  .qk_dim = whole(q[3]),
                  .v_dim = whole(v[3]),
                  .max_len = whole(std::max(q[2], v[2]))};
  setup.config.causal = false;
  setup.config.cross = q[2] != v[2];
  setup.config.global_mask = input.has("global_mask");
  if (input.has("x") && input.shape("x").rank() == 3)
    setup.config.n_embd = whole(input.shape("x")[2]);
  take_surroundings(setup, spec);
  take_projected_width(setup, spec, input);
  return setup;
}

CheckTokens read_tokens(CheckInput& input, const AttentionSpec& spec, const CheckSetup& setup,
                        DType dtype) {
  const Shape q = input.shape("q"), v = input.shape("v");
  const std::int64_t b = q[0], h = q[1], n = q[2], d = q[3], hk = v[1], m = v[2], dv = v[3];
  CheckTokens run;
  if (spec.caps.padding) {
    run.in.key_valid = input.take("key_valid", CheckKind::mask, {b, m});
    run.in.query_valid = input.take("query_valid", CheckKind::mask, {b, n});
  }
  const Tensor &keys = run.in.key_valid,
               &queries = run.in.query_valid.defined() || n != m ? run.in.query_valid : keys;
  const auto real = [&](const char* name, const Shape& shape, bool needed, const Tensor& valid,
                        int axis = 2) {
    const Tensor x = needed ? input.need(name, CheckKind::real, shape)
                            : input.take(name, CheckKind::real, shape);
    input.require_finite(name, x, axis, valid);
    return leaf_of(x, dtype);
  };
  run.in.q = real("q", q, true, queries);
  if (has_projection(spec, setup, "k")) run.in.k = real("k", {b, hk, m, d}, true, keys);
  run.in.v = real("v", {b, hk, m, dv}, true, keys);
  run.in.x = real("x", {b, n, setup.config.n_embd}, false, queries, 1);
  if (has_projection(spec, setup, "q_global")) {
    run.in.q_global = real("q_global", q, true, queries);
    run.in.k_global = real("k_global", {b, hk, m, d}, true, keys);
    run.in.v_global = real("v_global", {b, hk, m, dv}, true, keys);
    run.in.global_mask = input.take("global_mask", CheckKind::mask, {b, n});
  }
  if (spec.caps.bias) {
    const auto fits = [&](const Shape& s) {
      return s.rank() == 4 && (s[0] == 1 || s[0] == b) && (s[1] == 1 || s[1] == h) && s[2] == n &&
             s[3] == m;
    };
    const Tensor bias =
        input.take("bias", CheckKind::real, fits, cat("[1|", b, ",1|", h, ",", n, ",", m, "]"));
    input.require_finite("bias", bias, 0, {});
    run.in.bias = leaf_of(bias, dtype);
  }
  run.in.q_unrotated = run.in.q;
  run.in.k_unrotated = run.in.k;
  run.dout = input.need("do", CheckKind::real, {b, h, n, dv});
  input.require_finite("do", run.dout, 2, queries);
  const auto rows = [&](const Shape& s) {
    return s.rank() == 3 && s[0] == b && (s[1] == h || s[1] == 1) && s[2] == n;
  };
  run.dlse = input.take("dlse", CheckKind::real, rows, Shape{b, h, n}.str());
  input.require_finite("dlse", run.dlse, 2, queries);
  run.dden = input.take("dden", CheckKind::real, rows, Shape{b, h, n}.str());
  input.require_finite("dden", run.dden, 2, queries);
  return run;
}

attention::AttentionInput placed(const attention::AttentionInput& in, Stream& stream) {
  if (stream.device().is_cpu()) return in;
  attention::AttentionInput out = in;
  for (Var attention::AttentionInput::*part :
       {&attention::AttentionInput::q, &attention::AttentionInput::k, &attention::AttentionInput::v,
        &attention::AttentionInput::x, &attention::AttentionInput::q_global,
        &attention::AttentionInput::k_global, &attention::AttentionInput::v_global,
        &attention::AttentionInput::bias}) {
    if ((in.*part).defined()) out.*part = leaf((in.*part).value().to(stream.device(), stream));
  }
  out.q_unrotated = out.q;
  out.k_unrotated = out.k;
  for (Tensor attention::AttentionInput::*mask :
       {&attention::AttentionInput::key_valid, &attention::AttentionInput::query_valid,
        &attention::AttentionInput::global_mask}) {
    if ((in.*mask).defined()) out.*mask = (in.*mask).to(stream.device(), stream);
  }
  return out;
}

void read_module(CheckInput& input, attention::Standalone& alone, Stream& stream) {
  for (const auto& [name, parameter] : alone.parameters()) {
    if (parameter->tally) continue;
    const std::string from = cat("param.", name);
    const Tensor value = input.need(from, CheckKind::real, parameter->shape);
    input.require_finite(from, value, 0, {});
    alone.set(*parameter, value);
  }
  for (nn::Buffer* buffer : alone.method().buffers()) {
    const std::string name = buffer->path.substr(std::string_view("method.").size());
    const std::string from = cat(input.has(cat("mask.", name)) ? "mask." : "draw.", name);
    if (buffer->value.dtype() == DType::u8 && !input.has(from)) continue;
    const Tensor& to = buffer->value;
    const Tensor given = input.need_any(from, kind_of(to.dtype()), to.shape()),
                 whole = Tensor::empty(to.shape(), to.dtype(), kCpu);
    input.require_finite(from, given, 0, {});
    copy_to_all(whole, given);
    transfer(to, whole, stream);
  }
}

}  // namespace fovea::train
