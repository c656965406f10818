#include "ops/testing/large_address_suite.h"
