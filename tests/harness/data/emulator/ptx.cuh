// The instructions by their names in the emulator.
#pragma once

#include "emulated.h"

namespace wrong {

using namespace emulated;

}  // namespace wrong
