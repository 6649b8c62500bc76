# Packs the files that `millrace new` writes. They are real sources under templates/, which a test compiles; the program carries
# them as text. Each kind has a folder of its name; the files that all kinds share take @what@ and @part@ (from the kind's README)
# and @learns@ from that folder.
set(template_source "${CMAKE_BINARY_DIR}/generated/millrace/cli/template_texts.cpp")
set(template_rows "")
foreach(kind table image signal volume text)
  foreach(name README.md learns)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${dir}/templates/${kind}/${name}.in")
    file(READ "${dir}/templates/${kind}/${name}.in" ${name})
  endforeach()
  string(REGEX MATCH "^[^\n]*" what "${README.md}")  # the first line ends the sentence that the shared file begins
  string(LENGTH "${what}" length)
  string(SUBSTRING "${README.md}" ${length} -1 part)
  string(STRIP "${part}" part)
  string(APPEND part "\n")
  foreach(name CMakeLists.txt recipe.cpp smoke.json README.md)
    set(file "${dir}/templates/${name}.in")
    if(NOT EXISTS "${file}")
      set(file "${dir}/templates/${kind}/${name}.in")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" template_text)
    foreach(word what part learns)
      string(REPLACE "@${word}@" "${${word}}" template_text "${template_text}")
    endforeach()
    string(APPEND template_rows "    {\"${kind}\", \"${name}\", R\"template(${template_text})template\"},\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT "${template_source}" @ONLY CONTENT
[[// Made by folder.cmake from cli/templates.
#include "millrace/cli/detail/templates.h"

namespace millrace::cli {

std::span<const Template> templates() {
  static constexpr Template kAll[] = {
@template_rows@  };
  return kAll;
}

}  // namespace millrace::cli
]])
target_sources(${target} PRIVATE "${template_source}")
