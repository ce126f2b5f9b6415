// The instructions that the solutions write in assembly, by what they do. A kernel's own ptx.cuh
// gives them the names that its solution uses.
#pragma once

#include "emulated/barriers.h"
#include "emulated/copies.h"
#include "emulated/matrices.h"
#include "emulated/memory.h"
#include "emulated/numbers.h"
#include "emulated/tensor_maps.h"
#include "emulated/warpgroups.h"
