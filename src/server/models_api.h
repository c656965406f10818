// GET /v1/models and /v1/models/{id}. Threading: the I/O thread.
#pragma once

#include "server/api_context.h"

namespace ps::server {

void add_models_routes(Router& router, ApiContext& context);

}  // namespace ps::server
