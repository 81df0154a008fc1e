package redis

import "context"

// join makes one command of those that run the same script, each for a lock of
// its own: a script costs the server as much as several of the commands in it.
// The locks are no less independent for it, since each part has its own answer.
func join(all []*command) []*command {
	out := make([]*command, 0, len(all))
	var joints []*command
next:
	for _, c := range all {
		if !c.joins {
			out = append(out, c)
			continue
		}
		for _, j := range joints {
			if j.take(c) {
				continue next
			}
		}
		j := newCommand(c.ctx, nil)
		j.parts = append(j.parts, c)
		joints, out = append(joints, j), append(out, j)
	}
	for _, j := range joints {
		j.args = j.together()
	}
	return out
}

// take adds c to the parts of a joint if that runs its script. A joint of several
// callers has the context of none.
func (c *command) take(part *command) bool {
	first := c.parts[0].args
	if len(c.parts) == batch || len(part.args) != len(first) || part.args[0] != first[0] || part.args[1] != first[1] {
		return false
	}
	c.parts, c.ctx = append(c.parts, part), context.Background()
	return true
}

// together is the command that does what all parts do: with the one key of each,
// then the arguments of each.
func (c *command) together() []any {
	first, n := c.parts[0].args, len(c.parts)
	if n == 1 {
		return first
	}
	all := append(make([]any, 0, keyAt+n*(len(first)-keyAt)), first[0], first[1], n)
	for _, part := range c.parts {
		all = append(all, part.args[keyAt])
	}
	for _, part := range c.parts {
		all = append(all, part.args[keyAt+1:]...)
	}
	return all
}

// arrive wakes who waits for a command. A joint ends here, its parts do not.
func (c *command) arrive() {
	if len(c.parts) == 0 {
		c.done <- struct{}{}
		return
	}
	c.share()
	for _, part := range c.parts {
		part.done <- struct{}{}
	}
	clear(c.parts)
	c.parts = c.parts[:0]
	_, _ = c.result()
}

// share gives each part its part of the reply, or the error.
func (c *command) share() {
	if len(c.parts) == 1 {
		c.parts[0].reply, c.parts[0].err = c.reply, c.err
		return
	}
	replies, _ := c.reply.([]any)
	for i, part := range c.parts {
		switch {
		case c.err != nil:
			part.err = c.err
		case len(replies) != len(c.parts):
			part.err = errGarbled
		default:
			part.reply = replies[i]
		}
	}
}
