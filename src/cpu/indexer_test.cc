#include "ops/testing/indexer_suite.h"
