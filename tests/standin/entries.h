// Operations that can't fall back: they make memory, copy between devices, or ask for something that only a device knows.
#pragma once

#include <string>
#include <vector>

namespace millrace::standin {

// Names in the dispatcher's spelling without "aten::": "copy_", "empty.memory_format".
[[nodiscard]] const std::vector<std::string>& names_of_entries();

// An update of the parameters by a fused operation ends a step of the account.
[[nodiscard]] bool is_update(const std::string& name);
void end_of_step(const std::string& name);

}  // namespace millrace::standin
