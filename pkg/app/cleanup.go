package app

// cleanup closes what was opened, in reverse. Each part registers its end as soon as it exists, so that a start that fails
// halfway leaves nothing behind.
type cleanup struct{ steps []func() }

func (c *cleanup) add(step func()) { c.steps = append(c.steps, step) }

func (c *cleanup) run() {
	for i := len(c.steps) - 1; i >= 0; i-- {
		c.steps[i]()
	}
	c.steps = nil
}
