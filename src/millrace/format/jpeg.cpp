#include "millrace/format/jpeg.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

// These headers must follow <cstdio>: they use FILE without including it.
#include <jerror.h>
#include <jpeglib.h>

#include "millrace/base/error.h"

namespace millrace::format {
namespace {

constexpr int kMostScans = 500;     // enough for encoders, which use about ten; each scan costs a pass over the whole picture
constexpr JDIMENSION kContext = 2;  // smooth upsampling also reads this many columns on each side of the part

[[noreturn]] void refuse_jpeg(const std::filesystem::path& path, std::string what) {
  throw DataError({std::move(what), path.string(), "use an intact JPEG file: copy or write it again"});
}

// libjpeg reports errors through functions, and a function that reports a fatal error must not return.
struct Reports {
  jpeg_error_mgr manager{};  // must be the first member, because libjpeg gives back a pointer to it
  std::jmp_buf stop{};
  std::array<char, JMSG_LENGTH_MAX> text{};
};

[[noreturn]] void stop(j_common_ptr info) {
  auto* const reports = reinterpret_cast<Reports*>(info->err);
  info->err->format_message(info, reports->text.data());
  std::longjmp(reports->stop, 1);
}

// Handles a warning. A warning means that libjpeg continued with invented pixels, except for a few warnings that concern no
// pixel.
void on_message(j_common_ptr info, int level) {
  constexpr std::array kHarmless = {JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_EXTRANEOUS_DATA, JWRN_BOGUS_ICC};
  if (level < 0 && std::find(kHarmless.begin(), kHarmless.end(), info->err->msg_code) == kHarmless.end()) stop(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* const reports = reinterpret_cast<Reports*>(info->err);
  std::snprintf(reports->text.data(), reports->text.size(), "it has more than %d scans", kMostScans);
  std::longjmp(reports->stop, 1);
}

// The functions below call setjmp. They own no objects, because longjmp skips destructors.

bool read_header(Reports& reports, jpeg_decompress_struct& info, std::span<const std::byte> bytes) {
  if (setjmp(reports.stop) != 0) return false;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  return true;
}

struct Request {
  PicturePart part;
  std::size_t channels = 3;
  int reduction = 1;
  bool ends = false;  // true: the file ends with the end marker, so it was not cut off, and decoding may stop after the part
};

bool start(Reports& reports, jpeg_decompress_struct& info, const Request& request) {
  if (setjmp(reports.stop) != 0) return false;
  info.out_color_space = request.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(request.reduction);
  jpeg_start_decompress(&info);
  return true;
}

bool read_part(Reports& reports, jpeg_decompress_struct& info, const Request& request, std::byte* row, std::byte* out) {
  if (setjmp(reports.stop) != 0) return false;
  const PicturePart& part = request.part;
  const auto left = static_cast<JDIMENSION>(part.left);
  const JDIMENSION whole_width = info.output_width;
  JDIMENSION first = left - std::min(left, kContext);
  JDIMENSION width = std::min(left + static_cast<JDIMENSION>(part.width) + kContext, whole_width) - first;
  if (width < whole_width) jpeg_crop_scanline(&info, &first, &width);
  if (part.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(part.top));
  const std::size_t row_bytes = static_cast<std::size_t>(part.width) * request.channels;
  for (std::int64_t y = 0; y < part.height; ++y) {
    auto* target = reinterpret_cast<JSAMPROW>(row);
    jpeg_read_scanlines(&info, &target, 1);
    std::memcpy(out + static_cast<std::size_t>(y) * row_bytes, row + (left - first) * request.channels, row_bytes);
  }
  if (request.ends && info.output_scanline < info.output_height) return true;
  // Without an end marker, the rows below the part are decoded and dropped too. Skipping them would not check their data.
  while (info.output_scanline < info.output_height) {
    auto* target = reinterpret_cast<JSAMPROW>(row);
    jpeg_read_scanlines(&info, &target, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

struct JpegPicture::Decoder {
  Reports reports;
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct info{};

  Decoder() {
    info.err = jpeg_std_error(&reports.manager);
    reports.manager.error_exit = stop;
    reports.manager.emit_message = on_message;
    progress.progress_monitor = on_progress;
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

bool is_jpeg(std::span<const std::byte> start) noexcept {
  return start.size() >= 3 && start[0] == std::byte{0xFF} && start[1] == std::byte{0xD8} && start[2] == std::byte{0xFF};
}

PictureSize reduced(const PictureSize& size, int reduction) noexcept {
  const auto smaller = [&](std::int64_t n) { return (n + reduction - 1) / reduction; };
  return {.height = smaller(size.height), .width = smaller(size.width), .stored = size.stored};
}

int largest_reduction(const PictureSize& size, std::int64_t height, std::int64_t width) noexcept {
  for (int reduction = 8; reduction > 1; reduction /= 2) {
    const PictureSize left = reduced(size, reduction);
    if (left.height >= height && left.width >= width) return reduction;
  }
  return 1;
}

JpegPicture::JpegPicture(PictureFile file, std::uint64_t file_bytes) : file_(file), decoder_(std::make_unique<Decoder>()) {
  if (!is_jpeg(file.bytes)) refuse_jpeg(file.path, "not a JPEG file: it does not begin with \\xFF\\xD8");
  const auto fail = [&](const std::string& why) { refuse_jpeg(file.path, "the JPEG file can't be decoded: " + why); };
  if (!read_header(decoder_->reports, decoder_->info, file.bytes)) fail(decoder_->reports.text.data());
  const jpeg_decompress_struct& info = decoder_->info;
  const auto pass_over = [&](const std::string& why) {
    throw UnreadKind({"the JPEG file can't be decoded: " + why, file.path.string(), "save it again as an RGB or grey JPEG"});
  };
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) pass_over("it has the colours of a printer (CMYK)");
  if (info.arith_code != FALSE) pass_over("it is coded arithmetically");
  // The least possible size of the file: each block of 8 x 8 pixels takes at least one bit.
  std::uint64_t blocks = 0;
  for (int i = 0; i < info.num_components; ++i) {
    blocks += static_cast<std::uint64_t>(info.comp_info[i].width_in_blocks) * info.comp_info[i].height_in_blocks;
  }
  if (blocks / 8 > file_bytes) {
    fail("its header announces " + std::to_string(info.image_width) + " x " + std::to_string(info.image_height) +
         " pixels, but " + std::to_string(file_bytes) + " bytes can't hold so many");
  }
  size_ = {
      .height = info.image_height, .width = info.image_width, .stored = info.num_components == 1 ? Pixels::gray : Pixels::rgb};
}

JpegPicture::~JpegPicture() = default;

void JpegPicture::decode(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out) {
  const PictureSize whole = reduced(size_, reduction);
  const auto channels = static_cast<std::size_t>(pixels);
  MR_CHECK(lies_in(part, whole), "a part must lie inside the picture");
  MR_CHECK(out.size() == static_cast<std::size_t>(part.height) * static_cast<std::size_t>(part.width) * channels,
           "the memory for a part must have the part's size");
  const std::size_t end = file_.bytes.size();
  const Request request{.part = part,
                        .channels = channels,
                        .reduction = reduction,
                        .ends = file_.bytes[end - 2] == std::byte{0xFF} && file_.bytes[end - 1] == std::byte{0xD9}};
  thread_local std::vector<std::byte> row;
  const std::size_t row_bytes = static_cast<std::size_t>(whole.width) * channels;
  if (row.size() < row_bytes) row.resize(row_bytes);
  Decoder& decoder = *decoder_;
  // The progress pointer is set here, because creating the decoder clears it.
  decoder.info.progress = &decoder.progress;
  if (!start(decoder.reports, decoder.info, request) ||
      !read_part(decoder.reports, decoder.info, request, row.data(), out.data())) {
    refuse_jpeg(file_.path, "the JPEG file is damaged or cut off: " + std::string(decoder.reports.text.data()));
  }
}

}  // namespace millrace::format
