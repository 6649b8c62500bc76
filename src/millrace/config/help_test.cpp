#include <gmock/gmock.h>

#include "millrace/config/detail/test_config.h"
#include "millrace/config/schema.h"
#include "millrace/config/schema_of.h"

namespace millrace::config {
namespace {

using ::testing::HasSubstr;

struct Small {
  test::OptimSection optim;
  static consteval auto fields() { return std::tuple{field<&Small::optim>("Optimiser.")}; }
};

TEST(HelpText, IsGroupedAlignedAndWrapped) {
  EXPECT_EQ(help_text(schema_of<Small>(), 80),
            "optim: Optimiser.\n"
            "  --optim.name           Update rule. [adamw|adam|sgd; adamw]\n"
            "  --optim.learning_rate  Learning rate after warm-up. [number > 0; 0.001]\n"
            "  --optim.betas          Decay rates of the moments. [list of numbers 2 values,\n"
            "                         >= 0 and < 1; [0.9,0.999]]\n"
            "  --optim.momentum       Momentum of sgd. [number >= 0 and < 1; 0.9]\n"
            "  --optim.fused          One kernel for all parameters. [auto|true|false; auto]\n");
}

TEST(HelpText, NamesEveryKeyWithinTheWidth) {
  const std::string text = help_text(test::settings_schema(), 100);
  for (const Leaf& leaf : test::settings_schema().leaves) EXPECT_THAT(text, HasSubstr("--" + leaf.path + " "));
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    EXPECT_LE(text.find('\n', begin) - begin, 100U);
  }
  EXPECT_THAT(text, HasSubstr("[list of texts; required]"));
  EXPECT_THAT(text, HasSubstr("[integer (bits); 8]"));
}

TEST(Reference, HasATablePerSectionAndTheAliases) {
  const std::string text = reference_markdown(test::settings_schema(), test::settings_aliases());
  EXPECT_THAT(text, HasSubstr("## optim\n\nOptimiser.\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n"
                              "| `optim.name` | adamw\\|adam\\|sgd | `adamw` | Update rule. |\n"));
  EXPECT_THAT(text, HasSubstr("| `rate` | `model.dropout` | share kept \\| inverted |\n"));
  EXPECT_THAT(text, HasSubstr("| `data.cache` | path | `\"\"` |"));
}

}  // namespace
}  // namespace millrace::config
