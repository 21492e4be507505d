package app

import "slices"

// cleanup closes what was opened, in reverse. Each part registers its end as soon as it exists, so that a start that fails
// halfway leaves nothing behind.
type cleanup struct{ steps []func() }

func (c *cleanup) add(step func()) { c.steps = append(c.steps, step) }

func (c *cleanup) run() {
	for _, step := range slices.Backward(c.steps) {
		step()
	}
	c.steps = nil
}
