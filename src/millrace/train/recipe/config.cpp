#include "millrace/train/recipe/config.h"

namespace millrace::config {
template RunConfig read<RunConfig>(const Json&);
template DataConfig read<DataConfig>(const Json&);
template RunNames read<RunNames>(const Json&);
template optim::OptimConfig read<optim::OptimConfig>(const Json&);
template Schema schema_of<RunConfig>(std::string_view);
}  // namespace millrace::config
