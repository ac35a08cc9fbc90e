#include "train/check_attention_input.h"

#include <algorithm>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::train {

using attention::AttentionSpec;

namespace {

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
      setup.config.layer = static_cast<int>(value.as_int(key));
    else if (key == "n_layer")
      setup.config.n_layer = static_cast<int>(value.as_int(key));
    else if (key == "max_len")
      setup.config.max_len = static_cast<int>(value.as_int(key));
    else
      taken = false;
    if (declared || !taken) own.emplace_back(key, value);
  }
  setup.config.cross = cross && !setup.config.causal;
  setup.options = config::Node::map(std::move(own), setup.options.place());
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
    throw ConfigError(cat(path(), ": __metadata__ has no ", key));
  }
  return found->second;
}

Shape CheckInput::shape(const std::string& name) const {
  const data::SafetensorsEntry* entry = file_.find(name);
  if (entry == nullptr) throw ConfigError(cat(path(), ": tensor ", name, " is missing"));
  if (entry->shape.size() > kMaxRank) {
    throw ConfigError(cat(path(), ": tensor ", name, " has ", entry->shape.size(), " axes"));
  }
  Shape out;
  for (const std::int64_t size : entry->shape)
    out.push_back(size);
  return out;
}

Tensor CheckInput::take(const std::string& name, const std::function<bool(const Shape&)>& fits,
                        const std::string& expected) {
  used_.insert(name);
  if (!has(name)) return {};
  const Shape found = shape(name);
  if (!fits(found)) {
    throw ConfigError(
        cat(path(), ": tensor ", name, " is ", found.str(), ", but must be ", expected));
  }
  return file_.read(name);
}

Tensor CheckInput::take(const std::string& name, const Shape& expected) {
  return take(
      name, [&](const Shape& s) { return s == expected; }, expected.str());
}

Tensor CheckInput::need(const std::string& name, const Shape& expected) {
  shape(name);
  return take(name, expected);
}

Tensor CheckInput::need_any(const std::string& name, const Shape& whole) {
  Shape one;
  for (int axis = 1; axis < whole.rank(); ++axis)
    one.push_back(whole[axis]);
  shape(name);
  return take(
      name, [&](const Shape& s) { return s == whole || (whole.rank() > 1 && s == one); },
      whole.rank() < 2 ? whole.str() : cat(whole.str(), " or ", one.str()));
}

void CheckInput::refuse_rest(const std::string& kind) const {
  for (const data::SafetensorsEntry& entry : file_.entries()) {
    if (used_.count(entry.name) != 0) continue;
    throw ConfigError(
        cat(path(), ": tensor ", entry.name, " is unexpected for ", kind, " with these options"));
  }
}

CheckSetup read_setup(const CheckFileArgs& args, const AttentionSpec& spec,
                      const CheckInput& input) {
  const std::string kind = input.metadata("kind");
  if (attention::find_attention(kind) != &spec)
    throw ConfigError(cat(input.path(), ": holds a case of ", kind, ", not of ", args.kind));
  CheckSetup setup;
  setup.options = config::parse(input.metadata("options"), cat(input.path(), ": options"), false);
  if (setup.options.is_null()) setup.options = config::Node::map({}, {});
  config::override_with(setup.options, args.overrides);
  if (!args.kernel.empty()) {
    const std::string assignment[] = {cat("kernel=", args.kernel)};
    config::override_with(setup.options, assignment);
  }
  const Shape q = input.shape("q"), v = input.shape("v");
  if (q.rank() != 4 || v.rank() != 4)
    throw ConfigError(
        cat(input.path(), ": q is ", q.str(), " and v ", v.str(), ", but both must have 4 axes"));
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
  return setup;
}

CheckTokens read_tokens(CheckInput& input, const AttentionSpec& spec, const CheckSetup& setup,
                        DType dtype) {
  const Shape q = input.shape("q"), v = input.shape("v");
  const std::int64_t b = q[0], h = q[1], n = q[2], d = q[3], hk = v[1], m = v[2], dv = v[3];
  CheckTokens run;
  const auto real = [&](const char* name, const Shape& shape, bool needed) {
    return leaf_of(needed ? input.need(name, shape) : input.take(name, shape), dtype);
  };
  run.in.q = real("q", q, true);
  if (has_projection(spec, setup, "k")) run.in.k = real("k", {b, hk, m, d}, true);
  run.in.v = real("v", {b, hk, m, dv}, true);
  run.in.x = real("x", {b, n, setup.config.n_embd}, false);
  if (has_projection(spec, setup, "q_global")) {
    run.in.q_global = real("q_global", q, true);
    run.in.k_global = real("k_global", {b, hk, m, d}, true);
    run.in.v_global = real("v_global", {b, hk, m, dv}, true);
    run.in.global_mask = input.take("global_mask", {b, n});
  }
  if (spec.caps.bias) {
    const auto fits = [&](const Shape& s) {
      return s.rank() == 4 && (s[0] == 1 || s[0] == b) && (s[1] == 1 || s[1] == h) && s[2] == n &&
             s[3] == m;
    };
    run.in.bias =
        leaf_of(input.take("bias", fits, cat("[1|", b, ",1|", h, ",", n, ",", m, "]")), dtype);
  }
  run.in.q_unrotated = run.in.q;
  run.in.k_unrotated = run.in.k;
  if (spec.caps.padding) {
    run.in.key_valid = input.take("key_valid", {b, m});
    run.in.query_valid = input.take("query_valid", {b, n});
  }
  run.dout = input.need("do", {b, h, n, dv});
  const auto rows = [&](const Shape& s) {
    return s.rank() == 3 && s[0] == b && (s[1] == h || s[1] == 1) && s[2] == n;
  };
  run.dlse = input.take("dlse", rows, Shape{b, h, n}.str());
  run.dden = input.take("dden", rows, Shape{b, h, n}.str());
  return run;
}

void read_module(CheckInput& input, attention::Standalone& alone) {
  for (const auto& [name, parameter] : alone.parameters()) {
    alone.set(*parameter, input.need(cat("param.", name), parameter->shape));
  }
  for (nn::Buffer* buffer : alone.method().buffers()) {
    const std::string name = buffer->path.substr(std::string_view("method.").size());
    const std::string from = cat(input.has(cat("mask.", name)) ? "mask." : "draw.", name);
    copy_to_all(buffer->value, input.need_any(from, buffer->value.shape()));
  }
}

}  // namespace fovea::train
