#include "ops/testing/attention_suite.h"
#include "ops/testing/cache_write_suite.h"
#include "ops/testing/mini_layer_suite.h"
