#include "ops/testing/elementwise_suite.h"
#include "ops/testing/engram_suite.h"
#include "ops/testing/hyper_connection_suite.h"
