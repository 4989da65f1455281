//go:build !linux

package process

// awaitEnd waits until the command has ended, and reaps it: there is no portable way to leave that for later. Should its
// number be given away before the group is killed, which takes some microseconds, the signal would reach a stranger; these
// systems give numbers in turn, so it is not.
func (c *child) awaitEnd() { c.err = c.Wait() }

func (c *child) reap() error { return c.err }

// KillLeft finds groups on Linux only.
func KillLeft(string) ([]Group, error) { return nil, nil }
