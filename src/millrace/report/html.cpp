#include "millrace/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/report/detail/assets.h"

namespace millrace::report {
namespace {

bool is_number(std::string_view text) {
  if (text.empty()) return false;
  const std::string_view rest = text.front() == '-' || text.front() == '+' ? text.substr(1) : text;
  return !rest.empty() && rest.front() >= '0' && rest.front() <= '9' && rest.find_first_of(":/[{") == std::string_view::npos &&
         rest.size() < 24;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const char c = text[at];
    if (!step.valid)
      append_utf8(html, U'\uFFFD');
    else if (c == '&')
      html += "&amp;";
    else if (c == '<')
      html += "&lt;";
    else if (c == '>')
      html += "&gt;";
    else if (c == '"')
      html += "&quot;";
    else if (c == '\'')
      html += "&#39;";
    else if (step.size == 1 && (static_cast<unsigned char>(c) < ' ' || c == 127))
      html += ' ';
    else
      html += text.substr(at, step.size);
    at += step.size;
  }
  return html;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[group >> (18U - 6U * k) & 63U];
  }
  return text;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.size() < 2) return "";
  std::vector<bool> numbers;  // true for a column of numbers
  for (std::size_t column = 0; column < rows.front().size(); ++column) {
    numbers.push_back(column > 0 && std::ranges::all_of(rows.begin() + 1, rows.end(), [column](const auto& row) {
                        return column >= row.size() || row[column].empty() || is_number(row[column]);
                      }));
  }
  const bool words = std::ranges::none_of(numbers, [](bool is) { return is; });
  std::string html = std::string("<div class=\"scroll\"><table") + (words ? " class=\"words\">" : ">");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += i == 0 ? "<thead><tr>" : "<tr>";
    for (std::size_t column = 0; column < rows[i].size(); ++column) {
      const char* tag = i == 0 ? "th" : "td";
      html += std::string("<") + tag + (column < numbers.size() && numbers[column] ? " class=\"n\">" : ">") +
              escaped(rows[i][column]) + "</" + tag + ">";
    }
    html += i == 0 ? "</tr></thead><tbody>" : "</tr>";
  }
  return html + "</tbody></table></div>\n";
}

std::string shares(const std::vector<Part>& parts) {
  double sum = 0;
  for (const Part& part : parts) sum += std::max(part.value, 0.0);
  if (!(sum > 0) || !std::isfinite(sum)) return "";
  std::string bar, rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double share = std::max(parts[i].value, 0.0) / sum;
    if (share < 0.0005) continue;
    const std::string colour = "b" + std::to_string(std::min<std::size_t>(i, 7));
    bar += "<i class=\"" + colour + "\" style=\"width:" + fixed(share * 100, 2) + "%\" title=\"" + escaped(parts[i].name) + " " +
           percent(share) + "\"></i>";
    rows += "<tr><td><i class=\"key " + colour + "\"></i>" + escaped(parts[i].name) + "</td><td class=\"n\">" +
            escaped(parts[i].text) + "</td><td class=\"n\">" + percent(share, 1) + "</td></tr>";
  }
  return "<div class=\"bar\">" + bar + "</div><table class=\"parts\"><tbody>" + rows + "</tbody></table>\n";
}

std::string section(std::string_view title, const std::string& html) {
  return html.empty() ? "" : "<section><h2>" + escaped(title) + "</h2>\n" + html + "</section>\n";
}

std::string page(std::string_view title, const std::string& body, int reload_s) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"><title>" +
         escaped(title) + "</title><style>" + std::string(detail::kStyle) + "</style></head>\n<body" +
         (reload_s > 0 ? " data-reload=\"" + std::to_string(reload_s) + "\"" : "") + "><main>\n" + body +
         "</main><div id=\"tip\" hidden></div><script>" + std::string(detail::kScript) + std::string(detail::kPageScript) +
         "</script></body></html>\n";
}

}  // namespace millrace::report
