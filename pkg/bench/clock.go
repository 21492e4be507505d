package bench

import "time"

// epoch is what all instants are counted from, in nanoseconds of the monotonic clock.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }
