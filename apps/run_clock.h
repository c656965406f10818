// Times a run against ceilings that change while it goes on: a core's matrix units, shared or throttled, go from full
// speed to a quarter of it within tenths of a second, so that two samples around a run of seconds tell little about it.
// The run pauses where it can, its clock stopped, for a sample; its ceilings are means over its time.
#pragma once

#include "apps/machine_peak.h"

namespace ps::apps {

// Meter: CeilingMeter, or what has its watch() and sample(). Threading: one caller, outside the meter's pool.
template <typename Meter = CeilingMeter>
class RunClock {
 public:
  // seconds_between: the least time between two samples.
  RunClock(Meter& meter, cpu::Isa isa, double seconds_between)
      : meter_(meter), isa_(isa), seconds_between_(seconds_between) {}

  void start() {
    seconds_ = 0;
    sums_ = {};
    last_ = meter_.sample(isa_);
    resumed_ = meter_.watch().now();
  }
  // Where the run may pause: takes a sample if the last one was long ago.
  void may_pause() {
    if (since_sample() >= seconds_between_) sample();
  }
  void stop() { sample(); }

  // Of the run so far, without pauses.
  [[nodiscard]] double running() const { return seconds_ + since_sample(); }
  // Of the run that stopped last. REQUIRES: stop() was called.
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] Ceilings ceilings() const { return {sums_.read_gbs / seconds_, sums_.peak_gflops / seconds_}; }

 private:
  [[nodiscard]] double since_sample() const { return meter_.watch().now() - resumed_; }
  // Between two samples a ceiling counts as the mean of both.
  void sample() {
    const double seconds = since_sample();
    const Ceilings now = meter_.sample(isa_);
    seconds_ += seconds;
    sums_.read_gbs += seconds * (last_.read_gbs + now.read_gbs) / 2;
    sums_.peak_gflops += seconds * (last_.peak_gflops + now.peak_gflops) / 2;
    last_ = now;
    resumed_ = meter_.watch().now();
  }

  Meter& meter_;
  cpu::Isa isa_;
  double seconds_between_;
  double resumed_ = 0;
  double seconds_ = 0;
  Ceilings sums_;  // integrals over the time of the run
  Ceilings last_;
};

}  // namespace ps::apps
