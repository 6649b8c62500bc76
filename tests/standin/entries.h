// Operations that can't fall back: they make memory, copy between devices, or ask what only a device knows.
#pragma once

#include <string>
#include <vector>

namespace millrace::standin {

// "copy_", "empty.memory_format": as the dispatcher calls them, without "aten::".
[[nodiscard]] const std::vector<std::string>& names_of_entries();

// An update of the parameters by a fused operation ends a step of the account.
void end_of_step(const std::string& name);

}  // namespace millrace::standin
