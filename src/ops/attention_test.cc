#include "ops/testing/attention_suite.h"
