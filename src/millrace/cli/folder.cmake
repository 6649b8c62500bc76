# The files that `millrace new` writes: real sources under templates/, compiled by a test, carried as text.
set(template_source "${CMAKE_BINARY_DIR}/generated/millrace/cli/template_texts.cpp")
set(template_rows "")
foreach(name CMakeLists.txt main.cpp recipe.cpp smoke.json README.md)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${dir}/templates/${name}.in")
  file(READ "${dir}/templates/${name}.in" template_text)
  string(APPEND template_rows "    {\"${name}\", R\"template(${template_text})template\"},\n")
endforeach()
file(CONFIGURE OUTPUT "${template_source}" @ONLY CONTENT
[[// Made by folder.cmake from cli/templates.
#include "millrace/cli/templates.h"

namespace millrace::cli {

std::span<const Template> templates() {
  static constexpr Template kAll[] = {
@template_rows@  };
  return kAll;
}

}  // namespace millrace::cli
]])
target_sources(${target} PRIVATE "${template_source}")
