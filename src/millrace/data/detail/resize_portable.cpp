#define MR_RESIZE portable
#include "millrace/data/detail/resize_body.h"
