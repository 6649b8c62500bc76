#define MR_RESIZE avx2
#include "millrace/data/files/detail/resize_body.h"
