#define MR_RESIZE avx2
#include "millrace/data/detail/resize_body.h"
