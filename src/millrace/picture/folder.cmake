# Cairo draws, FreeType knows letters; the font becomes part of the library, so that a machine without fonts draws the same.
find_package(Cairo REQUIRED)
find_file(MILLRACE_FONT DejaVuSans.ttf HINTS ${CMAKE_PREFIX_PATH} /usr PATH_SUFFIXES share/fonts/truetype/dejavu)
mark_as_advanced(MILLRACE_FONT)
if(NOT MILLRACE_FONT)
  message(FATAL_ERROR "DejaVuSans.ttf is missing.\n  next     Debian's package is fonts-dejavu-core (./dev build installs it)")
endif()
target_link_libraries(${target} PRIVATE Cairo::Cairo)
set_source_files_properties("${dir}/detail/canvas.cpp" PROPERTIES COMPILE_DEFINITIONS "MILLRACE_FONT_FILE=\"${MILLRACE_FONT}\""
  OBJECT_DEPENDS "${MILLRACE_FONT}")
