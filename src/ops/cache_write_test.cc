#include "ops/testing/cache_write_suite.h"
