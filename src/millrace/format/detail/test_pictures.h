// For tests: makes pictures, and JPEG files of every kind, because Millrace itself does not write JPEG.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <jpeglib.h>

#include "millrace/base/philox.h"
#include "millrace/format/pixels.h"

namespace millrace::format::detail {

// A picture of slopes with noise, smooth enough to compress, but different everywhere.
inline std::vector<std::byte> picture(const PictureSize& size, std::uint64_t seed) {
  const auto channels = static_cast<std::size_t>(size.stored);
  const auto width = static_cast<std::size_t>(size.width);
  std::vector<std::byte> values(static_cast<std::size_t>(size.height) * width * channels);
  Philox random(seed);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t pixel = i / channels;
    values[i] = static_cast<std::byte>(pixel / width * 3 + pixel % width * 2 + i % channels * 60 + random.below(24));
  }
  return values;
}

struct JpegKind {
  int horizontal = 2, vertical = 2;  // numbers of luma samples per colour sample
  bool progressive = false;
  bool cmyk = false;
  int quality = 90;
};

inline std::vector<std::byte> encode_jpeg(const PictureSize& size, const std::vector<std::byte>& pixels, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // a libjpeg error ends the test program
  jpeg_create_compress(&info);
  unsigned char* made = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &made, &bytes);
  info.image_width = static_cast<JDIMENSION>(size.width);
  info.image_height = static_cast<JDIMENSION>(size.height);
  info.input_components = kind.cmyk ? 4 : static_cast<int>(size.stored);
  info.in_color_space = kind.cmyk ? JCS_CMYK : size.stored == Pixels::gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (size.stored == Pixels::rgb && !kind.cmyk) {
    info.comp_info[0].h_samp_factor = kind.horizontal;
    info.comp_info[0].v_samp_factor = kind.vertical;
  }
  if (kind.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const auto row_bytes = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(info.input_components);
  while (info.next_scanline < info.image_height) {
    // The cast is safe: libjpeg does not write to its input.
    auto* row = reinterpret_cast<JSAMPROW>(const_cast<std::byte*>(pixels.data() + info.next_scanline * row_bytes));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* const begin = reinterpret_cast<const std::byte*>(made);
  std::vector<std::byte> result(begin, begin + bytes);
  std::free(made);
  return result;
}

}  // namespace millrace::format::detail
