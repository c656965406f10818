#include "ops/testing/mini_layer_suite.h"
