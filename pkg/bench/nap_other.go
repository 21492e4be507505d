//go:build !linux

package bench

import "time"

func sharpen() {}

func nap(nanoseconds int64) { time.Sleep(time.Duration(nanoseconds)) }
