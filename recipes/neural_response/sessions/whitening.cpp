#include "recipes/neural_response/sessions/whitening.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace millrace::recipes::neural_response {
namespace {

using Complex = std::complex<double>;

Complex turn(double part) { return std::polar(1.0, -2 * std::numbers::pi * part); }

// Computes Fourier transforms of any length. If the length is a power of two, by_halves() computes a radix-2 FFT. Any other
// length is done as a convolution with a chirp (Bluestein, "A linear filtering approach to the computation of discrete Fourier
// transform", IEEE Trans. Audio Electroacoust. 1970).
class Fourier {
 public:
  explicit Fourier(std::size_t size) : size_(size), padded_(size) {
    if ((size & (size - 1)) != 0) {
      padded_ = 1;
      while (padded_ < 2 * size - 1) padded_ *= 2;
    }
    for (std::size_t k = 0; k < padded_ / 2; ++k) turns_.push_back(turn(static_cast<double>(k) / static_cast<double>(padded_)));
    if (padded_ == size_) return;
    for (std::size_t k = 0; k < size; ++k)
      chirp_.push_back(turn(static_cast<double>(k * k % (2 * size)) / static_cast<double>(2 * size)));
    answer_.assign(padded_, 0.0);
    for (std::size_t k = 0; k < size; ++k) answer_[k] = answer_[(padded_ - k) % padded_] = std::conj(chirp_[k]);
    by_halves(answer_);
    scratch_.resize(padded_);
  }

  // Replaces values[f] by the sum over t of values[t] exp(-2 pi i f t / size).
  void forward(std::vector<Complex>& values) {
    if (padded_ == size_) return by_halves(values);
    std::fill(scratch_.begin(), scratch_.end(), 0.0);
    for (std::size_t k = 0; k < size_; ++k) scratch_[k] = values[k] * chirp_[k];
    by_halves(scratch_);
    for (std::size_t k = 0; k < padded_; ++k) scratch_[k] = std::conj(scratch_[k] * answer_[k]);
    by_halves(scratch_);
    const double scale = 1.0 / static_cast<double>(padded_);
    for (std::size_t k = 0; k < size_; ++k) values[k] = std::conj(scratch_[k]) * scale * chirp_[k];
  }
  void backward(std::vector<Complex>& values) {
    for (Complex& value : values) value = std::conj(value);
    forward(values);
    for (Complex& value : values) value = std::conj(value) / static_cast<double>(size_);
  }

 private:
  void by_halves(std::vector<Complex>& values) const {
    const std::size_t n = padded_;
    for (std::size_t i = 1, j = 0; i < n; ++i) {
      std::size_t bit = n / 2;
      for (; (j & bit) != 0; bit /= 2) j ^= bit;
      j ^= bit;
      if (i < j) std::swap(values[i], values[j]);
    }
    for (std::size_t width = 2; width <= n; width *= 2) {
      const std::size_t stride = n / width;
      for (std::size_t begin = 0; begin < n; begin += width) {
        for (std::size_t k = 0; k < width / 2; ++k) {
          const Complex low = values[begin + k];
          const Complex high = values[begin + k + width / 2] * turns_[k * stride];
          values[begin + k] = low + high;
          values[begin + k + width / 2] = low - high;
        }
      }
    }
  }

  std::size_t size_, padded_;
  std::vector<Complex> turns_, chirp_, answer_, scratch_;
};

double frequency(std::size_t k, std::size_t size) {
  const auto n = static_cast<double>(size);
  return (2 * k < size + size % 2 ? static_cast<double>(k) : static_cast<double>(k) - n) / n;
}

// Transforms the rows of an image, then its columns.
template <class Transform>
void of_plane(std::vector<Complex>& image, std::size_t height, std::size_t width, const Transform& of_row,
              const Transform& of_column) {
  std::vector<Complex> line(width);
  for (std::size_t y = 0; y < height; ++y) {
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(y * width), width, line.begin());
    of_row(line);
    std::copy(line.begin(), line.end(), image.begin() + static_cast<std::ptrdiff_t>(y * width));
  }
  line.resize(height);
  for (std::size_t x = 0; x < width; ++x) {
    for (std::size_t y = 0; y < height; ++y) line[y] = image[y * width + x];
    of_column(line);
    for (std::size_t y = 0; y < height; ++y) image[y * width + x] = line[y];
  }
}

}  // namespace

void whiten(Series& series, Plane plane, const op::FftWhitening& options) {
  const auto frames = static_cast<std::size_t>(series.rows);
  const auto height = static_cast<std::size_t>(plane.height);
  const auto width = static_cast<std::size_t>(plane.width);
  const std::size_t pixels = height * width;
  if (frames == 0 || pixels == 0) return;
  const std::size_t half = frames / 2 + 1;  // half of the time frequencies is enough, because the rest are their complex
                                            // conjugates
  std::vector<std::complex<float>> spectrum(half * pixels);
  Fourier time(frames);
  Fourier rows(width);
  Fourier columns(height);
  std::vector<Complex> line(frames);
  for (std::size_t p = 0; p < pixels; p += 2) {  // transforms two pixels at once, as the real and the imaginary part of a line
    const bool pair = p + 1 < pixels;
    for (std::size_t t = 0; t < frames; ++t)
      line[t] = {series.values[t * pixels + p], pair ? series.values[t * pixels + p + 1] : 0.0F};
    time.forward(line);
    for (std::size_t f = 0; f < half; ++f) {
      const Complex one = line[f];
      const Complex other = std::conj(line[(frames - f) % frames]);
      spectrum[f * pixels + p] = std::complex<float>(0.5 * (one + other));
      if (pair) spectrum[f * pixels + p + 1] = std::complex<float>(Complex(0, -0.5) * (one - other));
    }
  }
  const std::function<void(std::vector<Complex>&)> row_to = [&](auto& values) { rows.forward(values); };
  const std::function<void(std::vector<Complex>&)> row_from = [&](auto& values) { rows.backward(values); };
  const std::function<void(std::vector<Complex>&)> column_to = [&](auto& values) { columns.forward(values); };
  const std::function<void(std::vector<Complex>&)> column_from = [&](auto& values) { columns.backward(values); };
  std::vector<Complex> image(pixels);
  for (std::size_t f = 0; f < half; ++f) {
    std::complex<float>* plane_of_f = spectrum.data() + f * pixels;
    std::copy_n(plane_of_f, pixels, image.begin());
    of_plane(image, height, width, row_to, column_to);
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        const double radius = std::hypot(frequency(f, frames), frequency(y, height), frequency(x, width));
        image[y * width + x] *= radius * std::exp(-std::pow(radius / options.f_0, options.n));
      }
    }
    of_plane(image, height, width, row_from, column_from);
    for (std::size_t p = 0; p < pixels; ++p) plane_of_f[p] = std::complex<float>(image[p]);
  }
  for (std::size_t p = 0; p < pixels; p += 2) {
    const bool pair = p + 1 < pixels;
    for (std::size_t f = 0; f < half; ++f) {
      const Complex one = spectrum[f * pixels + p];
      const Complex other = pair ? Complex(spectrum[f * pixels + p + 1]) : Complex(0);
      line[f] = one + Complex(0, 1) * other;
      if (f != 0 && 2 * f != frames) line[frames - f] = std::conj(one) + Complex(0, 1) * std::conj(other);
    }
    time.backward(line);
    for (std::size_t t = 0; t < frames; ++t) {
      series.values[t * pixels + p] = static_cast<float>(line[t].real());
      if (pair) series.values[t * pixels + p + 1] = static_cast<float>(line[t].imag());
    }
  }
}

}  // namespace millrace::recipes::neural_response
