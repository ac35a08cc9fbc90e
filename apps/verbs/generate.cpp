// fovea generate: a model continues a text.

#include "models/generate.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "byte_io.h"
#include "command_line.h"
#include "core/text.h"
#include "data/tokenizer/stream_decoder.h"
#include "train/stop_signal.h"
#include "train/text_model.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

struct Options {
  std::string model, prompt, prompt_file, tokenizer, device;
  std::vector<std::string> positional, stops;
  int max_tokens = 200, seed = 0, samples = 1, threads = 0;
  bool greedy = false, ignore_eos = false, echo = false;
  double temperature = -1;  // not given
  models::SamplingConfig sampling;

  std::optional<train::DeviceChoice> where() const {
    if (device.empty()) return std::nullopt;
    return device == "cpu"    ? train::DeviceChoice::cpu
           : device == "cuda" ? train::DeviceChoice::cuda
                              : train::DeviceChoice::automatic;
  }

  void check(bool prompt_given) {
    const auto refuse = [](const std::string& what) {
      throw ConfigError(cat("fovea generate: ", what));
    };
    if (positional.size() > 1)
      refuse(cat("unexpected argument '", positional[1], "'; a PROMPT of several words is quoted"));
    if (int{!positional.empty()} + int{prompt_given} + int{!prompt_file.empty()} > 1)
      refuse("there is more than one prompt: give PROMPT, --prompt or --prompt-file");
    for (const std::string& stop : stops)
      if (stop.empty()) refuse("--stop: an empty text would stop at once");
    const bool random = temperature > 0 || sampling.top_k > 1 || sampling.top_p < 1;
    if (greedy && random)
      refuse("--greedy takes the most probable token; leave --temperature, --top-k and --top-p");
    sampling.temperature = greedy ? 0 : temperature < 0 ? 1 : temperature;
  }
};

std::string all_of(const std::string& path) {
  ByteInput in(path);
  std::string text;
  for (std::string chunk; in.read(chunk);)
    text += chunk;
  return text;
}

// Whether something was put into standard input: not a terminal, /dev/null or nothing at all.
bool is_fed() {
  struct stat status {};
  return ::fstat(STDIN_FILENO, &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode) || S_ISSOCK(status.st_mode));
}

std::string prompt_of(const Options& options, bool prompt_given) {
  if (prompt_given) return options.prompt;
  if (!options.prompt_file.empty()) return all_of(options.prompt_file);
  if (options.positional.empty()) return is_fed() ? all_of("-") : std::string();
  return options.positional[0] == "-" ? all_of("-") : options.positional[0];
}

struct Sample {
  std::vector<std::int32_t> ids;
  std::string text;
  const char* ending = "max_tokens";
};

class Generation {
 public:
  Generation(const Options& options, train::TextModel& model, const std::string& prompt, bool show)
      : options_(options),
        model_(model),
        prompt_(prompt),
        show_(show),
        ids_(model.prompt(prompt)) {}

  const std::vector<std::int32_t>& prompt_ids() const { return ids_; }
  // False: nobody reads any more.
  bool wanted() const { return wanted_ && !signal_.requested(); }
  bool interrupted() const { return signal_.requested(); }

  Sample run(int number) {
    Sample sample;
    if (options_.samples > 1) header(number);
    if (options_.echo) print(prompt_);
    data::StreamDecoder decoder(model_.tokenizer());
    decoder.add(ids_);
    data::StopText text(options_.stops);
    const auto take = [&](std::int32_t id) {
      if (signal_.requested()) return end(sample, "signal");
      if (!options_.ignore_eos && model_.ends_text(id)) return end(sample, "end_of_text");
      sample.ids.push_back(id);
      const std::string more = text.add(decoder.add({&id, 1}));
      sample.text += more;
      print(more);
      return text.stopped() ? end(sample, "stop") : wanted_;
    };
    models::SamplingConfig sampling = options_.sampling;
    sampling.ids = model_.tokenizer().vocab_size();
    models::continue_prompt(
        model_.ctx(), model_.model(), ids_,
        models::Sampler(sampling, static_cast<std::uint64_t>(options_.seed), number),
        options_.max_tokens, take);
    const std::string rest = text.finish();
    sample.text += rest;
    print(rest);
    if (options_.samples > 1 || ::isatty(STDOUT_FILENO) == 1) finish_line();
    return sample;
  }

 private:
  static bool end(Sample& sample, const char* ending) {
    sample.ending = ending;
    return false;
  }
  void header(int number) {
    print(cat(number == 0 ? "" : "\n", "==> sample ", number + 1, " of ", options_.samples,
              " <==\n"));
  }
  void finish_line() {
    if (!ends_in_line_) print("\n");
  }
  void print(std::string_view text) {
    if (!show_ || text.empty()) return;
    ends_in_line_ = text.ends_with('\n');
    stdout_.write(text);
    wanted_ = stdout_.flush();
  }

  const Options& options_;
  train::TextModel& model_;
  const std::string& prompt_;
  bool show_;
  std::vector<std::int32_t> ids_;
  ByteOutput stdout_{""};
  train::StopSignal signal_;
  bool wanted_ = true, ends_in_line_ = true;
};

std::string json_of(const Sample& sample) {
  std::string ids;
  for (const std::int32_t id : sample.ids)
    ids += cat(ids.empty() ? "" : ",", id);
  return train::JsonObject()
      .add("text", sample.text)
      .add("tokens", sample.ids.size())
      .add("ending", sample.ending)
      .raw("ids", cat("[", ids, "]"))
      .str();
}

void declare(CommandLine& line, Options& options, std::vector<std::string>& prompts) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  line.required("MODEL", options.model,
                "a run or checkpoint folder, a Hugging Face folder or a llama2.c .bin")
      .rest("PROMPT", options.positional,
            "the text to continue, - for standard input (default, if something is piped in)")
      .repeated("--prompt", prompts, "the same, where a text begins with a dash")
      .option("--prompt-file", options.prompt_file, "the same, from a file")
      .option("--max-tokens", options.max_tokens, 1, "new tokens at most (default 200)")
      .flag("--greedy", options.greedy, "always the most probable token; as --temperature 0")
      .option("--temperature", options.temperature, 0, kNoLimit,
              "below 1: more probable tokens more often (default 1)")
      .option("--top-k", options.sampling.top_k, 0, "only the k most probable tokens (0: all)")
      .option("--top-p", options.sampling.top_p, 0, 1,
              "then only the most probable tokens that together reach p (default 1)")
      .option("--seed", options.seed, 0, "another seed, other choices (default 0)")
      .option("--samples", options.samples, 1, "continuations to make (default 1)")
      .repeated("--stop", options.stops, "end before this text; may be given several times")
      .flag("--ignore-eos", options.ignore_eos, "go on behind an end of text")
      .flag("--echo", options.echo, "print the prompt too")
      .option("--tokenizer", options.tokenizer,
              "as data.tokenizer (default: the run's, or the one beside the model)")
      .choice("--device", options.device, {"auto", "cpu", "cuda"},
              "where to compute, as train.device (default: the run's, if it is there)")
      .option("--threads", options.threads, 1, "CPU threads; results do not depend on it");
}

}  // namespace

ExitCode generate(const Arguments& arguments, Output& out) {
  Options options;
  std::vector<std::string> prompts;
  CommandLine line("generate",
                   "Continues a text, token by token, and prints what is new, byte for byte.");
  declare(line, options, prompts);
  if (!line.parse(arguments, out)) return ExitCode::ok;
  if (prompts.size() > 1) throw ConfigError("fovea generate: --prompt is given more than once");
  const bool prompt_given = !prompts.empty();
  if (prompt_given) options.prompt = prompts.front();
  options.check(prompt_given);

  train::TextModel model(options.model, options.tokenizer, options.threads, options.where());
  const std::string prompt = prompt_of(options, prompt_given);
  Generation generation(options, model, prompt, !out.json());
  std::string samples;
  for (int number = 0; number < options.samples && generation.wanted(); ++number)
    samples += cat(samples.empty() ? "" : ",", json_of(generation.run(number)));

  const data::Tokenizer& tokenizer = model.tokenizer();
  out.record().add("model", model.path()).add("layout", model.layout());
  out.record().add("tokenizer", tokenizer.kind());
  out.record().add("tokenizer_fingerprint", tokenizer.fingerprint());
  out.record().add("prompt", prompt).add("prompt_tokens", generation.prompt_ids().size());
  out.record().add("temperature", options.sampling.temperature);
  out.record().add("top_k", options.sampling.top_k).add("top_p", options.sampling.top_p);
  out.record().add("seed", options.seed).raw("samples", cat("[", samples, "]"));
  return generation.interrupted() ? ExitCode::stopped : ExitCode::ok;
}

}  // namespace fovea::apps
