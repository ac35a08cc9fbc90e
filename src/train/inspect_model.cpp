// Weights, of any program. See inspect_kinds.h.

#include <map>

#include "core/error.h"
#include "core/text.h"
#include "data/safetensors.h"
#include "train/checkpoint_tokenizer.h"
#include "train/import/imported_model.h"
#include "train/inspect_kinds.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

constexpr std::size_t kMostRows = 40;

std::int64_t numel_of(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape)
    n *= size;
  return n;
}

}  // namespace

Inspection inspect_safetensors(const std::string& path) {
  const data::SafetensorsFile file(path);
  std::map<std::string, std::int64_t> by_dtype;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  std::string rows, tensors, dtypes;
  std::size_t shown = 0;
  for (const data::SafetensorsEntry& entry : file.entries()) {
    elements += numel_of(entry.shape);
    bytes += entry.end - entry.begin;
    ++by_dtype[entry.stored_dtype];
    if (shown++ < kMostRows)
      rows +=
          cat("\n  ", name_text(entry.name), " ", entry.stored_dtype, " ", shape_text(entry.shape));
    tensors += cat(tensors.empty() ? "" : ",", JsonObject()
                                                   .add("name", entry.name)
                                                   .add("dtype", entry.stored_dtype)
                                                   .raw("shape", shape_text(entry.shape))
                                                   .str());
  }
  if (shown > kMostRows) rows += cat("\n  ... and ", shown - kMostRows, " more");
  for (const auto& [dtype, count] : by_dtype)
    dtypes += cat(dtypes.empty() ? "" : ", ", count, " ", dtype);
  return {"safetensors",
          cat(path, ": safetensors, ",
              plural(static_cast<std::int64_t>(file.entries().size()), "tensor"),
              dtypes.empty() ? "" : cat(" (", dtypes, ")"), ", ",
              human_count(static_cast<double>(elements)), " elements, ",
              human_bytes(static_cast<double>(bytes)), rows),
          JsonObject()
              .add("kind", "safetensors")
              .add("path", path)
              .add("elements", elements)
              .add("bytes", bytes)
              .raw("tensors", cat("[", tensors, "]"))
              .str(),
          {}};
}

Inspection inspect_model(const std::string& path) {
  const ImportedModel model = import_model(path);
  const models::ModelConfig& m = model.config;
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : model.tensors)
    elements += numel_of(tensor.shape);
  const std::string tokenizer = tokenizer_name_of(path);
  std::string about = tokenizer.empty() ? "no tokenizer beside it" : cat("tokenizer ", tokenizer);
  if (const auto opened = tokenizer.empty() ? nullptr : tokenizer_of(path)) {
    about += cat(", ", opened->kind(), ", ", opened->vocab_size(), " ids");
    if (opened->vocab_size() > m.vocab_size) about += cat(", more than the model's ", m.vocab_size);
  }
  return {"model",
          cat(path, ": model of ", model.layout, ", ",
              plural(static_cast<std::int64_t>(model.tensors.size()), "tensor"), ", ",
              human_count(static_cast<double>(elements)), " elements\n  ",
              plural(m.n_layer, "layer"), ", ", plural(m.n_head, "head"), ", width ", m.n_embd,
              ", vocabulary ", m.vocab_size, ", block size ", m.block_size, "\n  ", about),
          JsonObject()
              .add("kind", "model")
              .add("path", path)
              .add("layout", model.layout)
              .add("elements", elements)
              .add("tokenizer", tokenizer)
              .raw("model", model.keys.json())
              .str(),
          {}};
}

}  // namespace fovea::train
