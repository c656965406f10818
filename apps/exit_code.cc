#include "apps/exit_code.h"

namespace ps::apps {

int exit_code(const Status& status) noexcept {
  if (status.ok()) return 0;
  switch (status.code()) {
    case Code::kInvalid:
    case Code::kNotFound: return 2;
    case Code::kInternal: return kInternalExit;
    default: return 1;
  }
}

}  // namespace ps::apps
