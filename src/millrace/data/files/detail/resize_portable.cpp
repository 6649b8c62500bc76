#define MR_RESIZE portable
#include "millrace/data/files/detail/resize_body.h"
