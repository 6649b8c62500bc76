#include "millrace/hdf5/remedy.h"

#include "millrace/base/shell_word.h"

namespace millrace::hdf5 {

std::string remedy_for(std::string_view reason, const std::filesystem::path& file) {
  const bool is_newer = reason.find(kNewerForm) != std::string_view::npos;
  if (!is_newer && reason.find(kUnknownFilter) == std::string_view::npos) return "";
  // The command creates each data set anew, because h5py's copy() would keep the form of its source.
  const std::string command =
      R"(h5py, sys; a, b = h5py.File(sys.argv[1]), h5py.File(sys.argv[2], 'w'); b.attrs.update(a.attrs); )"
      R"(a.visititems(lambda n, d: (b.create_dataset(n, data=d[()], dtype=d.dtype, chunks=d.chunks) if hasattr(d, 'dtype') )"
      R"(else b.require_group(n)).attrs.update(d.attrs))"
      ")\" ";
  std::filesystem::path made = file;
  made.replace_extension(".new" + file.extension().string());
  const std::string files = shell_word(file.string()) + " " + shell_word(made.string());
  if (is_newer) return "write the file anew in an older form, with h5py: python3 -c \"import " + command + files;
  return "write the file anew without the filter, with h5py and hdf5plugin: python3 -c \"import hdf5plugin, " + command + files;
}

}  // namespace millrace::hdf5
