// Foreign models that are damaged, lie about themselves, or are of a kind we do not have: one error
// that names what is wrong, with a checkpoint's exit code, and no memory taken for what is not
// there.

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/text.h"
#include "foreign_model.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::test;
using namespace fovea::train;
namespace fs = std::filesystem;

namespace {

std::string message_of(const std::string& path) {
  try {
    import_model(path);
  } catch (const CheckpointError& e) {
    return e.what();
  }
  return "";
}

std::string with(std::string json, const std::string& from, const std::string& to) {
  const std::size_t at = json.find(from);
  REQUIRE(at != std::string::npos);
  return json.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("every missing, extra, mis-shaped and mis-typed tensor is reported at once") {
  const TemporaryFolder folder;
  tiny_gpt2()
      .drop("h.0.ln_1.weight")
      .add("wpe.weight", {6, 4})
      .add("h.1.ln_1.weight", {4})
      .add("wte.weight", {7, 4}, DType::i32)
      .write(folder, gpt2_json());
  const std::string message = message_of(folder.path());
  for (const char* part : {"missing     h.0.ln_1.weight [4]", "extra       h.1.ln_1.weight [4]",
                           "mis-shaped  wpe.weight [6,4], but must be [5,4]",
                           "mis-typed   wte.weight i32, but must be floating-point"}) {
    CHECK_MESSAGE(message.find(part) != std::string::npos, part);
  }
}

TEST_CASE("another architecture and what ours cannot do are refused by the field's name") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& config, const std::string& what) {
    overwrite(folder.path("config.json"), config);
    check_refused(folder, what);
  };
  tiny_llama().write(folder, llama_json());
  refused(llama_json("", "mixtral"), "model_type is \"mixtral\", but only gpt2, llama and qwen3");
  refused("{\"hidden_size\": 8}", "has no model_type");
  refused(llama_json(R"(, "sliding_window": 4096)"), "sliding_window is \"4096\"");
  refused(llama_json(R"(, "layer_types": ["sliding_attention"])"), "layer_types is");
  refused(llama_json(R"(, "quantization_config": {"bits": 4})"), "quantization_config is");
  refused(llama_json(R"(, "partial_rotary_factor": 0.5)"), "partial_rotary_factor is 0.5");
  refused(with(llama_json(), "silu", "gelu"), "hidden_act is \"gelu\", but must be silu");
  refused(with(llama_json(), "\"rope_scaling\": null",
               R"("rope_scaling": {"rope_type": "llama3", "factor": 8})"),
          "rope_scaling.rope_type is \"llama3\", but must be default");
  refused(with(llama_json(), "\"rope_scaling\": null", R"("rope_scaling": {"factor": 8})"),
          "rope_scaling is");
  refused(llama_json(R"(, "rope_parameters": {"rope_type": "yarn"})"), "rope_parameters.rope_type");
  tiny_gpt2().write(folder, gpt2_json());
  refused(with(gpt2_json(), "gelu_new", "relu"), "activation_function is \"relu\"");
  refused(gpt2_json(R"(, "scale_attn_by_inverse_layer_idx": true)"),
          "scale_attn_by_inverse_layer_idx is 'true', but must be false");
  refused(gpt2_json(R"(, "add_cross_attention": true)"), "add_cross_attention");
}

TEST_CASE("sizes that are missing, of another type, huge or do not divide are refused by name") {
  const TemporaryFolder folder;
  tiny_gpt2().write(folder, gpt2_json());
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& what) {
    overwrite(folder.path("config.json"), with(gpt2_json(), from, to));
    check_refused(folder, what);
  };
  refused("\"n_layer\": 1, ", "", "n_layer is missing");
  refused("\"n_layer\": 1", "\"n_layer\": \"1\"", "n_layer is \"1\", but must be an integer");
  refused("\"n_layer\": 1", "\"n_layer\": -1", "n_layer is -1");
  refused("\"n_head\": 2", "\"n_head\": 3", "the width 4 is not divisible by 3 heads");
  refused("\"n_embd\": 4", "\"n_embd\": 99999999999999999999", "n_embd is");
  refused("\"vocab_size\": 7", "\"vocab_size\": 16777216", "but must be [16777216,4]");
  refused("\"n_layer\": 1", "\"n_layer\": 1024", "missing     h.1.");
  refused("\"n_layer\"", "\"n_head\": 2, \"n_layer\"", "\"n_head\" is there twice");
  overwrite(folder.path("config.json"), "[]");
  check_refused(folder, "is JSON, but not an object");
  overwrite(folder.path("config.json"), std::string(100000, '['));
  check_refused(folder, "nests deeper than");
  overwrite(folder.path("config.json"), std::string(5 << 20, ' '));
  check_refused(folder, "more than the 4194304");
}

TEST_CASE("weights cut anywhere are refused") {
  const TemporaryFolder folder;
  tiny_llama().write(folder, llama_json());
  const std::string file = folder.path("model.safetensors"), whole = contents(file);
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    overwrite(file, whole.substr(0, length));
    CHECK_THROWS_WITH_AS(import_model(folder.path()), doctest::Contains(file.c_str()),
                         CheckpointError);
  }
}

TEST_CASE("the hostile safetensors never become a model") {
  const std::string hostile = test_data("hostile/safetensors");
  if (hostile.empty()) FOVEA_SKIP("the hostile data is not there");
  const TemporaryFolder folder;
  overwrite(folder.path("config.json"), gpt2_json());
  int tried = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(hostile)) {
    overwrite(folder.path("model.safetensors"), contents(entry.path().string()));
    INFO(entry.path().string());
    CHECK_THROWS_AS(import_model(folder.path()), CheckpointError);
    CHECK_THROWS_AS(import_model(entry.path().string()), CheckpointError);
    ++tried;
  }
  CHECK(tried > 20);
}

TEST_CASE("damaged llama2.c files are refused with the reason") {
  const std::string folder = test_data("hostile/containers/llama2c");
  if (folder.empty()) FOVEA_SKIP("the hostile data is not there");
  CHECK(message_of(folder + "/heads_do_not_divide.bin")
            .ends_with("the width 64 is not divisible by 7 heads"));
  CHECK(message_of(folder + "/negative_dims.bin")
            .ends_with("the width is -64, but must be in [1, 65536]"));
  CHECK(
      message_of(folder + "/truncated.bin").find("has 4124 bytes, but a llama2.c model of width") !=
      std::string::npos);
}

TEST_CASE("a llama2.c header that claims terabytes takes none") {
  const TemporaryFolder folder;
  const std::string file = folder.path("model.bin");
  const auto refused = [&](std::vector<std::int32_t> header, const std::string& what) {
    overwrite(file, std::string(reinterpret_cast<const char*>(header.data()),
                                header.size() * sizeof(std::int32_t)));
    CHECK_MESSAGE(message_of(file).find(what) != std::string::npos, what);
  };
  refused({65536, 1048576, 1024, 1024, 1024, 16777216, 1048576}, "has 28 bytes, but");
  refused({64, 172, 5, 8, 4, 0, 512}, "the vocabulary is 0");
  refused({64, 172, 5, 8, 4, INT32_MIN, 512}, "the vocabulary is -2147483648");
  refused({64, 172, 5, 8, 0, 512, 512}, "the number of key and value heads is 0");
  refused({24, 172, 5, 8, 4, 512, 512}, "the head width 3 is odd");
  refused({0x616b3432, 1, 64, 172, 5, 8, 4}, "is a llama2.c model of version 1");
  refused({64, 172}, "has 8 bytes, too few for a model");
}

TEST_CASE("a path that is no model says what would be one") {
  const TemporaryFolder folder;
  check_refused(folder, "config.json and model.safetensors or model.safetensors.index.json");
  CHECK(message_of(folder.path("none")).ends_with("does not exist"));
  Foreign().add("a", {1}).write(folder, "{}");
  fs::remove(folder.path("config.json"));
  CHECK(message_of(folder.path("model.safetensors"))
            .ends_with("has no config.json beside it, so the sizes of the model are not known"));
}
