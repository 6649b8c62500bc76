#include "recipes/language_model/train_model.h"

#include <filesystem>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/format/csv.h"
#include "millrace/train/run/run_training.h"
#include "recipes/language_model/entry.h"
#include "recipes/language_model/recipe.h"

namespace millrace::recipes::language_model {
namespace {

// Returns the run's config. It describes the model, so that commands can make the model again from the run folder.
Json values_of(const std::vector<std::string>& sources, const TrainModelOptions& options, const ModelConfig& model) {
  Json values = {{"recipe.sources", sources},
                 {"recipe.seq_len", options.seq_len},
                 {"recipe.val_fraction", options.val_fraction},
                 {"recipe.model_positions", model.positions},
                 {"recipe.model_embd", model.width},
                 {"recipe.model_layer", model.layers},
                 {"recipe.model_head", model.heads},
                 {"recipe.model_activation", config::write(model.activation)},
                 {"recipe.embd_pdrop", model.embedding_dropout},
                 {"recipe.attn_pdrop", model.attention_dropout},
                 {"recipe.resid_pdrop", model.residual_dropout},
                 {"recipe.vocab_size", model.vocab_size},
                 {"recipe.tied", model.tied},
                 {"recipe.embedding_scale", model.embedding_scale},
                 {"recipe.positions", model.learned_positions ? "learned" : "sinusoidal"},
                 {"recipe.position_scale", model.position_scale},
                 {"recipe.attention", config::write(model.attention)},
                 {"train.epochs", options.epochs},
                 {"train.seed", options.seed},
                 {"data.batch_size", options.batch_size},
                 {"data.workers", options.num_workers},
                 {"data.pin_memory", options.pin_memory},
                 {"optim.learning_rate", options.learning_rate},
                 {"device.name", options.device},
                 {"precision.dtype", options.use_amp ? "auto" : "fp32"},
                 {"log.gpu_memory", options.log_gpu_memory},
                 {"run.dir", options.save_path}};
  if (!options.resume_path.empty()) values["train.resume"] = options.resume_path;
  return values;
}

// Reads history.csv of a run. The file's first columns are epoch, train_loss, val_loss, seconds. An empty cell becomes NaN.
History read_history(const std::filesystem::path& run) {
  const auto number = [](const std::string& cell) {
    return cell.empty() ? std::numeric_limits<double>::quiet_NaN() : std::stod(cell);
  };
  History history;
  const format::CsvTable table = format::parse_csv(Fs::real().read_file(run / "history.csv"));
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const auto& cells = table.rows[row];
    MR_CHECK(cells.size() > 3, "history.csv has at least four columns");
    history.train_loss.push_back(number(cells[1]));
    history.val_loss.push_back(number(cells[2]));
    history.epoch_times.push_back(number(cells[3]));
  }
  return history;
}

}  // namespace

History train_model(std::shared_ptr<Transformer> model, std::shared_ptr<const data::Tokenizer> tokenizer,
                    const std::vector<std::string>& sources, const TrainModelOptions& options) {
  Entry row = entry();
  row.make = [&](const Json& config, const Context& context) {
    return std::make_unique<LanguageModel>(config::read<Sections>(config), context, model, tokenizer);
  };
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema);
  layers.add_values(row.defaults, "recipe");
  layers.add_values(values_of(sources, options, model->config()), "train_model");
  telemetry::Console console(options.print ? telemetry::Console::Mode::automatic : telemetry::Console::Mode::quiet);
  RunRequest request;
  request.entry = &row;
  request.config = layers.resolve();
  request.command_line = {"train_model"};
  request.console = &console;
  const RunOutcome outcome = run_training(request);
  return read_history(outcome.run_folder);
}

}  // namespace millrace::recipes::language_model
